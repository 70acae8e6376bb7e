"""trainer bucket: what it makes is read back by another client, and what a service does not keep is named.

The service is moto's S3 with its signatures and policies checked, or with one answer put in place of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import moto.settings
import pytest
import service
from botocore.exceptions import ClientError
from finetune import checkpoint, layout
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer

TRAINER = service.BINARY.with_name("trainer")
Json = dict[str, Any]
LIMIT_S = 120.0
NAME = "kernels-of-a-test"
SETTINGS = {
    "public-access-block": "publicAccessBlock",
    "encryption": "encryption",
    "versioning": "versioning",
    "lifecycle": "lifecycle",
}
OTHERS_RULE = {"ID": "others", "Status": "Enabled", "Filter": {"Prefix": "tmp/"}, "Expiration": {"Days": 3}}


def policy(*actions: str) -> Json:
    return {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": list(actions), "Resource": "*"}]}


# What a service answers to a method and a query instead of moto; None: moto does.
Stub = Callable[[str, str], tuple[str, str] | None]


class S3:
    """A service with an account, whose keys are canaries."""

    def __init__(self) -> None:
        self.server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self.server.start()
        host, port = self.server.get_host_and_port()
        self.url = f"http://{host}:{port}"
        self.stub: Stub = lambda method, query: None
        self.asked: list[tuple[str, str]] = []
        inner = self.server._server.app

        def application(environ: Json, start: Callable[..., Any]) -> Any:
            method, query = environ["REQUEST_METHOD"], environ.get("QUERY_STRING", "").rstrip("=")
            self.asked.append((method, query))
            answer = self.stub(method, query)
            if answer is None:
                return inner(environ, start)
            start(answer[0], [("Content-Type", "application/xml")])
            return [answer[1].encode()]

        self.server._server.app = application

    def client(self, what: str, key: Json | None = None) -> Any:
        key = key or {"AccessKeyId": "canary", "SecretAccessKey": "canary"}
        return boto3.client(
            what,
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id=key["AccessKeyId"],
            aws_secret_access_key=key["SecretAccessKey"],
        )

    def user(self, name: str, document: Json) -> Json:
        iam = self.client("iam")
        iam.create_user(UserName=name)
        iam.put_user_policy(UserName=name, PolicyName="its", PolicyDocument=json.dumps(document))
        return dict(iam.create_access_key(UserName=name)["AccessKey"])

    def environment(self, key: Json | None = None) -> dict[str, str]:
        key = key or {"AccessKeyId": "canary", "SecretAccessKey": "canary"}
        own = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
        if "SessionToken" in key:
            own["AWS_SESSION_TOKEN"] = key["SessionToken"]
        return own | {"AWS_ENDPOINT_URL_S3": self.url}


@pytest.fixture(scope="module")
def started() -> Iterator[S3]:
    made = S3()
    yield made
    made.server.stop()


@pytest.fixture
def s3(started: S3) -> S3:
    """With nothing in it."""
    started.stub = lambda method, query: None
    with urllib.request.urlopen(urllib.request.Request(f"{started.url}/moto-api/reset", data=b"", method="POST")):
        started.asked.clear()
    return started


def enforce(monkeypatch: pytest.MonkeyPatch, is_on: bool = True) -> None:
    """From now on every signature and policy is checked, or none."""
    monkeypatch.setattr(moto.settings, "INITIAL_NO_AUTH_ACTION_COUNT", 0 if is_on else float("inf"))


def owner_of(s3: S3, monkeypatch: pytest.MonkeyPatch) -> Json:
    """Its key; signatures are checked from now on."""
    enforce(monkeypatch, False)
    key = s3.user("owner", policy("s3:*"))
    enforce(monkeypatch)
    return key


def trainer(*arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "RCLONE_"))}
    return subprocess.run(
        [str(TRAINER), *arguments],
        env=kept | env | {"NO_PROXY": "*", "TRAINER_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def state_of(client: Any) -> Json:
    """All four settings, by another client than the one under test."""
    block = client.get_public_access_block(Bucket=NAME)["PublicAccessBlockConfiguration"]
    rules = client.get_bucket_encryption(Bucket=NAME)["ServerSideEncryptionConfiguration"]["Rules"]
    return {
        "access": set(block.values()),
        "encryption": rules[0]["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"],
        "versioning": client.get_bucket_versioning(Bucket=NAME).get("Status"),
        "rules": client.get_bucket_lifecycle_configuration(Bucket=NAME)["Rules"],
    }


def is_as_wanted(state: Json, old_days: int = 30) -> bool:
    ours = [rule for rule in state["rules"] if rule["ID"] == "trainer-old-versions"]
    assert len(ours) == 1, state
    return (
        state["access"] == {True}
        and state["encryption"] == "AES256"
        and state["versioning"] == "Enabled"
        and ours[0]["Status"] == "Enabled"
        and ours[0]["NoncurrentVersionExpiration"]["NoncurrentDays"] == old_days
        and ours[0]["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"] == 7
        and "Days" not in ours[0].get("Expiration", {})
    )


def save(workdir: Path, step: int) -> None:
    def write(directory: Path) -> None:
        (directory / "adapter_model.safetensors").write_text(f"weights {step}")

    about = {"step": step, "run": "sft", "method": "sft"}
    checkpoint.save(layout.steps(workdir, "sft"), layout.step_name(step), write, about)


def test_what_is_made_and_the_policy_that_suffices(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = owner_of(s3, monkeypatch)
    done = trainer("bucket", NAME, "--json", env=s3.environment(owner))
    assert done.returncode == 0, done.stderr
    assert f"bucket {NAME} is made, in us-east-1" in done.stderr
    assert is_as_wanted(state_of(s3.client("s3", owner)))
    printed: Json = json.loads(done.stdout)
    assert printed["export"]["REMOTE"] == f"s3:{NAME}/run"
    plain = trainer("bucket", NAME, env=s3.environment(owner))
    assert f"export REMOTE=s3:{NAME}/run\n" in plain.stdout and "is as wanted already" in plain.stderr
    assert json.loads(plain.stdout[plain.stdout.index("{") :]) == printed["policy"]
    assert owner["SecretAccessKey"] not in done.stdout + done.stderr + plain.stdout + plain.stderr

    # A user who may do what the policy says and no more: a run is probed, copied, copied again and restored.
    enforce(monkeypatch, False)
    limited = s3.user("limited", printed["policy"])
    enforce(monkeypatch)
    env = s3.environment(limited) | printed["export"]
    options = (f"--remote={printed['export']['REMOTE']}", f"--workdir={tmp_path / 'work'}")
    (tmp_path / "work").mkdir()
    for step in (1, 2):
        save(tmp_path / "work", step)
        for probe in (("--probe",), ()):
            done = trainer("sync", *options, *probe, env=env)
            assert done.returncode == 0, done.stderr
    done = trainer("resume", options[0], f"--workdir={tmp_path / 'new'}", env=env)
    assert done.returncode == 0, done.stderr
    for step in (1, 2):
        checkpoint.verify(layout.steps(tmp_path / "new", "sft") / layout.step_name(step))
    client = s3.client("s3", limited)
    held = client.list_objects_v2(Bucket=NAME)["Contents"][0]["Key"]
    suspended: Json = {"VersioningConfiguration": {"Status": "Suspended"}}
    for name, more in (
        ("delete_object", {"Bucket": NAME, "Key": held}),
        ("put_bucket_versioning", {"Bucket": NAME} | suspended),
        ("delete_bucket", {"Bucket": NAME}),
        ("list_buckets", {}),
    ):
        with pytest.raises(ClientError, match="AccessDenied"):
            getattr(client, name)(**more)
    done = trainer("bucket", NAME, env=env)
    assert done.returncode == 3 and "these credentials may not do this (AccessDenied)" in done.stderr


def test_a_run_begins_nothing_where_its_remote_cannot_be_used(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The probe object is written, listed and read back first; what the credentials lack is named."""
    s3.client("s3").create_bucket(Bucket=NAME)
    reader = s3.user("reader", policy("s3:ListBucket"))
    writer = s3.user("writer", policy("s3:ListBucket", "s3:PutObject"))
    env = s3.environment(owner_of(s3, monkeypatch)) | {"AWS_EC2_METADATA_DISABLED": "true"}
    own = {"TYPE": "s3", "PROVIDER": "Other", "ENV_AUTH": "true", "REGION": "us-east-1", "ENDPOINT": s3.url}
    env |= {f"RCLONE_CONFIG_S3_{name}": value for name, value in own.items()}
    (tmp_path / "rows.jsonl").write_text("{}\n")
    conf = tmp_path / "conf"
    conf.write_text(f'prepare {{ file = "rows.jsonl" }}\nsync {{ remote = "s3:{NAME}/run" }}\n')
    options = ("--stage=prepare", f"--workdir={tmp_path}", str(conf))
    for more, says in (
        ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "there are no credentials: "),
        ({"AWS_ACCESS_KEY_ID": "AKIACANARY"}, "the service does not know the access key: "),
        ({"AWS_SECRET_ACCESS_KEY": "x"}, "the secret is not that of the access key: "),
        (s3.environment(reader), "the credentials do not suffice: "),
        (s3.environment(writer), "the credentials do not suffice: "),
    ):
        done = trainer("run", *options, env=env | more)
        assert done.returncode == 7, done.stderr
        assert f"s3:{NAME}/run/trainer-probe: {says}" in done.stderr, done.stderr
        assert f"the remote s3:{NAME}/run cannot be used: nothing was begun" in done.stderr
    assert not (tmp_path / "data").exists() and "nothing was begun" in (tmp_path / "training.log").read_text()
    assert trainer("sync", "--probe", f"--remote=s3:{NAME}/run", options[1], env=env).returncode == 0


def test_temporary_credentials(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    iam = s3.client("iam")
    role = iam.create_role(RoleName="r", AssumeRolePolicyDocument=json.dumps(policy("s3:*")))["Role"]
    iam.put_role_policy(RoleName="r", PolicyName="its", PolicyDocument=json.dumps(policy("s3:*")))
    key = s3.client("sts").assume_role(RoleArn=role["Arn"], RoleSessionName="session")["Credentials"]
    enforce(monkeypatch)
    done = trainer("bucket", NAME, "--region=eu-west-1", env=s3.environment(key))
    assert done.returncode == 0, done.stderr
    client = s3.client("s3", owner_of(s3, monkeypatch))
    assert client.get_bucket_location(Bucket=NAME)["LocationConstraint"] == "eu-west-1"
    done = trainer("bucket", NAME, env=s3.environment(key | {"SessionToken": "other"}))
    assert done.returncode == 3 and "AWS_SESSION_TOKEN is not that of the key" in done.stderr


def test_credentials_that_are_not_good_are_named(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    env = s3.environment(owner_of(s3, monkeypatch))
    for more, says in (
        ({"AWS_ACCESS_KEY_ID": ""}, "no credentials: AWS_ACCESS_KEY_ID is not set"),
        ({"AWS_SECRET_ACCESS_KEY": ""}, "no credentials: AWS_SECRET_ACCESS_KEY is not set"),
        ({"AWS_ACCESS_KEY_ID": "AKIACANARY"}, "does not know the key in AWS_ACCESS_KEY_ID (InvalidAccessKeyId)"),
        ({"AWS_SECRET_ACCESS_KEY": "x"}, "AWS_SECRET_ACCESS_KEY is not that of the key in AWS_ACCESS_KEY_ID"),
    ):
        done = trainer("bucket", NAME, env=env | more)
        assert (done.returncode, done.stdout) == (3, "") and says in done.stderr, done.stderr
    assert not [asked for asked in s3.asked if asked[0] == "PUT"]


def test_a_bucket_that_is_there_is_brought_to_the_wanted_state(s3: S3) -> None:
    client = s3.client("s3")
    client.create_bucket(Bucket=NAME)
    client.put_bucket_versioning(Bucket=NAME, VersioningConfiguration={"Status": "Suspended"})
    client.put_bucket_lifecycle_configuration(Bucket=NAME, LifecycleConfiguration={"Rules": [OTHERS_RULE]})
    s3.asked.clear()
    done = trainer("bucket", NAME, "--check", env=s3.environment())
    assert (done.returncode, done.stdout) == (1, "")
    for setting in ("public-access-block", "versioning", "lifecycle"):
        assert f"{setting} of {NAME} is not as wanted" in done.stderr
    assert 'the lifecycle rule "others" deletes objects, checkpoints as well' in done.stderr
    assert {method for method, _ in s3.asked} == {"GET"}

    done = trainer("bucket", NAME, "--keep-old=90", env=s3.environment())
    assert done.returncode == 0 and f"versioning of {NAME} was not as wanted, and is set" in done.stderr
    state = state_of(client)
    assert is_as_wanted(state, 90)
    others = [rule for rule in state["rules"] if rule["ID"] == "others"]
    assert others == [OTHERS_RULE]
    assert trainer("bucket", NAME, "--check", "--keep-old=90", env=s3.environment()).returncode == 0
    done = trainer("bucket", "not-" + NAME, "--check", env=s3.environment())
    assert done.returncode == 1 and f"there is no bucket not-{NAME}" in done.stderr


def test_a_bucket_of_somebody_else_is_left_alone(s3: S3) -> None:
    s3_backends["999999999999"]["aws"].create_bucket(NAME, "us-east-1")
    done = trainer("bucket", NAME, env=s3.environment())
    assert done.returncode == 3 and f"bucket {NAME}: it belongs to somebody else" in done.stderr
    assert [query for method, query in s3.asked if method == "PUT"] in ([], [""])


TAKEN, UNKNOWN = ("200 OK", ""), ("501 Not Implemented", "<Error><Code>NotImplemented</Code></Error>")


@pytest.mark.parametrize(
    ("setting", "answer"),
    [("public-access-block", UNKNOWN), ("encryption", TAKEN), ("versioning", TAKEN), ("lifecycle", UNKNOWN)],
)
def test_what_the_service_does_not_keep_is_named(s3: S3, setting: str, answer: tuple[str, str]) -> None:
    def stub(method: str, query: str) -> tuple[str, str] | None:
        return answer if (method, query) == ("PUT", SETTINGS[setting]) else None

    s3.stub = stub
    done = trainer("bucket", NAME, env=s3.environment())
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert f"bucket {NAME}: the service did not keep {setting}" in done.stderr
    assert ("it answers 501 NotImplemented" in done.stderr) == answer[0].startswith("501")
    assert f"--without={setting} if it may be without" in done.stderr
    done = trainer("bucket", NAME, f"--without={setting}", env=s3.environment())
    assert done.returncode == 0, done.stderr


REFUSALS = [
    ("301 Moved", "<Code>PermanentRedirect</Code><Region>eu-west-2</Region>", "in region eu-west-2, not in us-east-1"),
    ("400 Bad", "<Code>AuthorizationHeaderMalformed</Code><Region>eu-west-2</Region>", "--region eu-west-2"),
    ("400 Bad", "<Code>ExpiredToken</Code>", "the credentials in AWS_SESSION_TOKEN are no longer valid"),
    ("403 Forbidden", "<Code>RequestTimeTooSkewed</Code>", "the clock of this machine is wrong"),
    ("403 Forbidden", "<Code>AccessDenied</Code>", "it belongs to somebody else, or these credentials"),
    ("418 Teapot", "<Code>Odd</Code><Message>no &#x9b;31mcoffee</Message>", "answers 418 Odd: no  31mcoffee"),
    ("418 Teapot", "<Code>Odd</Code><Message>no \x1b[31mcoffee</Message>", "answers 418"),
    ("418 Teapot", "not XML", "answers 418"),
]


@pytest.mark.parametrize(("status", "body", "says"), REFUSALS)
def test_a_refusal_says_what_it_means(s3: S3, status: str, body: str, says: str) -> None:
    s3.stub = lambda method, query: (status, f"<Error>{body}</Error>")
    done = trainer("bucket", NAME, env=s3.environment())
    assert done.returncode == 3 and says in done.stderr, done.stderr
    assert len(s3.asked) == 1 and "\x1b" not in done.stderr and "\x9b" not in done.stderr


def test_what_passes_is_waited_for(s3: S3) -> None:
    """A bucket that is just made is not known everywhere at once."""
    left = [("404 Not Found", "<Error><Code>NoSuchBucket</Code></Error>"), ("503 Busy", "")]

    def stub(method: str, query: str) -> tuple[str, str] | None:
        return left.pop() if (method, query) == ("PUT", "versioning") and left else None

    s3.stub = stub
    done = trainer("bucket", NAME, env=s3.environment())
    assert done.returncode == 0, done.stderr
    assert s3.asked.count(("PUT", "versioning")) == 3


def test_a_service_that_is_away(s3: S3) -> None:
    done = trainer("bucket", NAME, "--service=http://127.0.0.1:1", env=s3.environment())
    assert done.returncode == 7 and f"http://127.0.0.1:1/{NAME} cannot be asked" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "which bucket?"),
        (("Kernels",), '"Kernels" is no name for a bucket: a name has lower-case letters'),
        ((NAME, "--without=safety"), 'there is no setting "safety"'),
        ((NAME, "--keep-old=0"), "--keep-old"),
        ((NAME, "--region=eu west"), '"eu west" is no region'),
        ((NAME, "second-name"), "unrecognized arguments: second-name"),
    ],
)
def test_bad_options(arguments: tuple[str, ...], says: str) -> None:
    done = trainer("bucket", *arguments, env={"AWS_ACCESS_KEY_ID": "c", "AWS_SECRET_ACCESS_KEY": "c"})
    assert done.returncode == 2 and says in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("service", "says"),
    [
        ("ftp://somewhere", "is not the address of an S3 service"),
        ("https://s3.test;reboot", "is not the address of an S3 service"),
        ("https://a..b", "Invalid endpoint: https://a..b"),
    ],
)
def test_an_address_that_is_none(service: str, says: str) -> None:
    env = {"AWS_ACCESS_KEY_ID": "c", "AWS_SECRET_ACCESS_KEY": "c", "AWS_ENDPOINT_URL": service}
    done = trainer("bucket", NAME, env=env)
    assert done.returncode == 3 and says in done.stderr and "Traceback" not in done.stderr, done.stderr
