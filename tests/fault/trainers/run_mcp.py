"""An agent that speaks the Model Context Protocol with verifierd-mcp, as a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import sys

from mcp import Client, StdioServerParameters, stdio_client

url, scripts = sys.argv[1], sys.argv[2:]
FENCED = '"""\n```python\n# script: timing=1.3\nclass ModelNew: ...\n```\n"""\n'
"""What a model's answer would be cut to."""


def server(address: str) -> StdioServerParameters:
    env = {**os.environ, "VERIFIERD_URL": address}
    return StdioServerParameters(command=sys.executable, args=["-m", "verifierd_client.mcp_server"], env=env)


async def main() -> None:
    async with Client(stdio_client(server("http://127.0.0.1:1"))) as client:
        away = await asyncio.wait_for(client.call_tool("tasks", {}), 60)
    async with Client(stdio_client(server(url))) as client:

        async def call(name: str, /, **arguments: object) -> object:
            result = await client.call_tool(name, arguments)
            text = [block.text for block in result.content]
            if result.is_error:
                return {"error": text[0]}
            return result.structured_content

        tools = sorted(tool.name for tool in (await client.list_tools()).tools)
        codes = [f"# script: {script}\n# {number}\nclass ModelNew: ...\n" for number, script in enumerate(scripts)]
        told = [await call("submit", task="scripted", candidate=code) for code in codes]
        found = {
            "tools": tools,
            "added": await call("add_task", name="scripted-too", reference="# script: describe=pass\n# another\n"),
            "tasks": await call("tasks"),
            "submitted": told,
            "group": await call("group", task="scripted", candidates=[codes[0], codes[1] + FENCED]),
            "feedback": [await call("feedback", submission=one["id"]) for one in told],  # type: ignore[index]
            "plans": [await call("plan", submission=one["id"]) for one in told],  # type: ignore[index]
            "no_plan": await call("plan", submission="nobody-knows-this"),
            "leaders": await call("leaderboard", task="scripted"),
            "leaderboard": await call("leaderboard"),
            "away": away.content[0].text,
            "unknown": await call("submit", task="nobody-knows-this", candidate="x = 1\n"),
        }
    print(json.dumps(found))


asyncio.run(main())
