"""trainer bucket: a bucket for a run's checkpoints, closed to the public, encrypted, versioned, with lifecycle rules.

An existing bucket is brought to the wanted state; differences are reported. Every setting is read back, since a service
may accept a setting that it does not keep. A bucket or object is never deleted, and other lifecycle rules stay.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from .common import FAILED, OK, SERVICE, Json, PipelineError, whole

RULE_ID = "trainer-old-versions"
UPLOAD_DAYS = 7  # an interrupted copy is begun again within the hour
LOOKS = 3  # reads of a setting, before it counts as not kept
ATTEMPTS = 5  # of one call, after failures that may be transient

BLOCK = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
OWN_BEGINNINGS = ("xn--", "sthree-", "amzn-s3-demo-")
OWN_ENDS = ("-s3alias", "--ol-s3", "--x-s3", "--table-s3")
MEANINGS = {
    "InvalidAccessKeyId": "the service does not know the key in AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "AWS_SECRET_ACCESS_KEY is not that of the key in AWS_ACCESS_KEY_ID",
    "InvalidToken": "AWS_SESSION_TOKEN is not that of the key in AWS_ACCESS_KEY_ID",
    "ExpiredToken": "the credentials in AWS_SESSION_TOKEN are no longer valid",
    "RequestTimeTooSkewed": "the clock of this machine is wrong",
    "BucketAlreadyExists": "it belongs to somebody else, names are shared by all: choose another",
    "AccessDenied": "it belongs to somebody else, or these credentials may not do this",
    "InvalidBucketName": "the service does not take this name",
    "TooManyBuckets": "the account has as many buckets as it may have",
}


@dataclass
class Setting:
    """The document to send (from the present one), and whether a response has the wanted state."""

    call: str  # get_bucket_CALL, put_bucket_CALL
    document: str  # the name of put's argument
    wanted: Callable[[Json], Json]
    is_kept: Callable[[Json], bool]


def settings(old_days: int) -> dict[str, Setting]:
    rule = {
        "ID": RULE_ID,
        "Filter": {"Prefix": ""},
        "Status": "Enabled",
        "Expiration": {"ExpiredObjectDeleteMarker": True},
        "NoncurrentVersionExpiration": {"NoncurrentDays": old_days},
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": UPLOAD_DAYS},
    }

    def is_encrypted(now: Json) -> bool:  # with a key of the owner's is as good
        rules = now.get("ServerSideEncryptionConfiguration", {}).get("Rules", [])
        kinds = [one.get("ApplyServerSideEncryptionByDefault", {}).get("SSEAlgorithm") for one in rules]
        return any(kind in ("AES256", "aws:kms", "aws:kms:dsse") for kind in kinds)

    def has_rule(now: Json) -> bool:
        return any(
            one.get("ID") == RULE_ID
            and one["Status"] == "Enabled"
            and not one.get("Filter", {}).get("Prefix")
            and all(
                one.get(key) == rule[key] for key in ("NoncurrentVersionExpiration", "AbortIncompleteMultipartUpload")
            )
            for one in now.get("Rules", [])
        )

    def with_rule(now: Json) -> Json:  # all rules are replaced at once
        return {"Rules": [one for one in now.get("Rules", []) if one.get("ID") != RULE_ID] + [rule]}

    encryption = {"Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]}
    return {
        "public-access-block": Setting(
            "public_access_block",
            "PublicAccessBlockConfiguration",
            lambda now: dict.fromkeys(BLOCK, True),
            lambda now: all(now.get("PublicAccessBlockConfiguration", {}).get(key) for key in BLOCK),
        ),
        "encryption": Setting(
            "bucket_encryption", "ServerSideEncryptionConfiguration", lambda now: encryption, is_encrypted
        ),
        "versioning": Setting(
            "bucket_versioning",
            "VersioningConfiguration",
            lambda now: {"Status": "Enabled"},
            lambda now: now.get("Status") == "Enabled",
        ),
        "lifecycle": Setting("bucket_lifecycle_configuration", "LifecycleConfiguration", with_rule, has_rule),
    }


SETTINGS = tuple(settings(1))


def say(text: str) -> None:
    print(f"trainer: {text}", file=sys.stderr)


def code_of(error: ClientError) -> str:
    return str(error.response["Error"].get("Code", ""))


def status_of(error: ClientError) -> int:
    return int(error.response["ResponseMetadata"]["HTTPStatusCode"])


class Bucket:
    """One bucket of a service, and the account that asks."""

    def __init__(self, name: str, region: str, service: str | None) -> None:
        self.name, self.region, self.service = name, region, service
        if service and not re.fullmatch(r"https?://([a-z0-9._-]+|\[[0-9a-f:.]+\])(:\d+)?/*", service, re.IGNORECASE):
            raise PipelineError(f'"{service}" is not the address of an S3 service (https://HOST, no path)')
        for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            if not os.environ.get(key):
                raise PipelineError(f"no credentials: {key} is not set (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, "
                                    "for temporary ones, AWS_SESSION_TOKEN)")  # fmt: skip
        is_here = bool(re.match(r"https?://(127\.|localhost)", service or "", re.IGNORECASE))
        self.client = boto3.client(
            "s3",
            endpoint_url=service,
            region_name=region,
            aws_access_key_id=os.environ["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=os.environ["AWS_SECRET_ACCESS_KEY"],
            aws_session_token=os.environ.get("AWS_SESSION_TOKEN") or None,
            config=Config(
                connect_timeout=10,
                read_timeout=60,
                retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
                # The path has the name, not the host: every service can do that, and any certificate fits.
                s3={"addressing_style": "path"},
                request_checksum_calculation="when_required",
                proxies={} if is_here else None,  # a proxy's loopback is another machine
            ),
        )

        def stay(context: Json, **_: Any) -> None:  # a bucket that is elsewhere is reported, not followed
            context.setdefault("s3_redirect", {})["redirected"] = True

        self.client.meta.events.register_last("before-parameter-build.s3", stay)

    def call(self, call: str, **more: Any) -> Json:
        """ClientError: the service refuses. A bucket that was made is known everywhere only after a moment."""
        for attempt in range(ATTEMPTS):
            try:
                return dict(getattr(self.client, call)(Bucket=self.name, **more))
            except ClientError as error:
                is_late = call.startswith("put_") and code_of(error) == "NoSuchBucket"
                if not (is_late or code_of(error) == "OperationAborted") or attempt == ATTEMPTS - 1:
                    raise
            time.sleep(0.5 * 2**attempt)
        raise AssertionError

    def refusal(self, error: ClientError, what: str = "") -> PipelineError:
        """The meaning of a refusal, with the bucket's name and what to do."""
        code, headers = code_of(error), error.response["ResponseMetadata"].get("HTTPHeaders", {})
        region = headers.get("x-amz-bucket-region") or error.response["Error"].get("Region")
        if region and region != self.region:
            text = f"bucket {self.name} is in region {region}, not in {self.region}: --region {region}"
        elif code in MEANINGS:
            text = f"bucket {self.name}: {MEANINGS[code]} ({code})"
        else:
            message = error.response["Error"].get("Message", "")
            host = self.client.meta.endpoint_url
            text = f"bucket {self.name}: {host} answers {status_of(error)} {code}: {message}"
        printable = "".join(c if c.isprintable() else " " for c in text)
        return PipelineError(f"{what}: {printable}" if what else printable)

    def exists(self) -> bool:
        try:
            self.call("get_bucket_versioning")
        except ClientError as error:
            if code_of(error) != "NoSuchBucket":
                raise self.refusal(error) from None
            return False
        return True

    def create(self) -> None:
        """If the bucket exists, its owner is checked."""
        place = {"CreateBucketConfiguration": {"LocationConstraint": self.region}}
        try:
            self.call("create_bucket", **({} if self.region == "us-east-1" else place))
        except ClientError as error:
            if code_of(error) != "BucketAlreadyOwnedByYou":
                raise self.refusal(error) from None

    def now(self, name: str, setting: Setting) -> Json:
        """A setting as the service has it; nothing where it says that it is not set or not known."""
        try:
            return self.call(f"get_{setting.call}")
        except ClientError as error:
            if status_of(error) in (401, 403) or code_of(error) == "NoSuchBucket":
                raise self.refusal(error, name) from None
            return {}

    def apply(self, name: str, setting: Setting, now: Json) -> None:
        """Send it, and read it back until it is there."""
        said = ""
        try:
            self.call(f"put_{setting.call}", **{setting.document: setting.wanted(now)})
        except ClientError as error:
            if status_of(error) in (401, 403):
                raise self.refusal(error, name) from None
            said = f" (it answers {status_of(error)} {code_of(error)})"
        for look in range(LOOKS):
            time.sleep(0.5 * look)
            if setting.is_kept(self.now(name, setting)):
                return
        raise PipelineError(
            f"bucket {self.name}: the service did not keep {name}{said}; --without={name} if it may be without", FAILED
        )

    def settle(self, wanted: dict[str, Setting], *, is_check: bool, is_new: bool) -> int:
        """All settings: looked at and, but for a check, brought about. How many were not as wanted."""
        differs = 0
        for name, setting in wanted.items():
            now = self.now(name, setting)
            for rule in now.get("Rules", []):  # of others, that end what they did not make
                ends = rule.get("Expiration", {})
                is_others = rule.get("ID") != RULE_ID and rule["Status"] == "Enabled"
                if is_others and ends and not ends.get("ExpiredObjectDeleteMarker"):
                    say(f'the lifecycle rule "{rule.get("ID", "")}" deletes objects, checkpoints as well')
            if setting.is_kept(now):
                continue
            differs += 1
            if not is_new:
                say(f"{name} of {self.name} {'is not as wanted' if is_check else 'was not as wanted, and is set'}")
            if not is_check:
                self.apply(name, setting, now)
        return differs

    def policy(self) -> Json:
        """The rights that sync, resume and the probe need: to list, read and write; not to delete, nor to change it."""
        partition = {"cn-": "aws-cn", "us-gov-": "aws-us-gov"}
        begins = next((part for start, part in partition.items() if self.region.startswith(start)), "aws")
        arn = f"arn:{begins}:s3:::{self.name}"
        do = ["s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"]
        return {
            "Version": "2012-10-17",
            "Statement": [
                {"Sid": "List", "Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": arn},
                {"Sid": "CopyAndRestore", "Effect": "Allow", "Action": do, "Resource": f"{arn}/*"},
            ],
        }

    def exports(self) -> dict[str, str]:
        """The name, and rclone's remote "s3", whose credentials are the environment's."""
        own = {"TYPE": "s3", "PROVIDER": "Other" if self.service else "AWS", "ENV_AUTH": "true", "REGION": self.region}
        if self.service:
            own["ENDPOINT"] = self.service
        return {"REMOTE": f"s3:{self.name}/run"} | {f"RCLONE_CONFIG_S3_{key}": value for key, value in own.items()}


def bucket_name(name: str) -> str:
    """May a bucket have this name, on AWS and in an https address?"""
    faults = {
        "a name has 3 to 63 characters": not 3 <= len(name) <= 63,
        "a dot breaks the certificate of an https address": "." in name,
        "a name has lower-case letters, digits and hyphens only": not re.fullmatch("[a-z0-9-]*", name),
        "a name begins and ends with a letter or a digit": name.startswith("-") or name.endswith("-"),
        "AWS keeps names with this beginning to itself": name.startswith(OWN_BEGINNINGS),
        "AWS keeps names with this end to itself": name.endswith(OWN_ENDS),
    }
    for why, is_fault in faults.items():
        if is_fault:
            raise argparse.ArgumentTypeError(f'"{name}" is no name for a bucket: {why}')
    return name


def region_name(name: str) -> str:
    if not re.fullmatch("[a-z0-9-]{1,32}", name):
        raise argparse.ArgumentTypeError(f'"{name}" is no region')
    return name


def setting_names(names: str) -> list[str]:
    for name in names.split(","):
        if name not in SETTINGS:
            raise argparse.ArgumentTypeError(f'there is no setting "{name}"')
    return names.split(",")


def first_of(*names: str) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)


def options() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser("trainer bucket", description="Make an encrypted, versioned S3 bucket with lifecycle "
        "rules, or bring one that is there to this state. Credentials are AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY "
        "and, for temporary ones, AWS_SESSION_TOKEN.")  # fmt: skip
    a = p.add_argument
    a("name", type=bucket_name, nargs="?", metavar="NAME")
    a("--region", type=region_name, metavar="NAME", default=first_of("AWS_REGION", "AWS_DEFAULT_REGION") or "us-east-1",
      help="where it is (or AWS_REGION, AWS_DEFAULT_REGION; default us-east-1)")  # fmt: skip
    a("--service", metavar="URL", default=first_of("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
      help="another S3 service than AWS's own (or AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL)")  # fmt: skip
    a("--keep-old", type=whole(1, 36500), default=30, metavar="DAYS", help="how long a version that was replaced or "
      "deleted is kept (default 30)")  # fmt: skip
    a("--without", type=setting_names, default=[], metavar="LIST", help="what the service cannot do: "
      + ", ".join(SETTINGS))  # fmt: skip
    a("--check", action="store_true", help="change nothing; tell what differs (status 1)")
    a("--json", action="store_true", help="one document: name, what to export, policy")
    return p


def settle(given: Any) -> int:
    bucket = Bucket(given.name, given.region, given.service)
    is_there = bucket.exists()
    if given.check and not is_there:
        raise PipelineError(f"there is no bucket {given.name}", FAILED)
    if not given.check:
        bucket.create()
    wanted = {name: setting for name, setting in settings(given.keep_old).items() if name not in given.without}
    differs = bucket.settle(wanted, is_check=given.check, is_new=not is_there)
    if differs == 0:
        say(f"bucket {given.name} is as wanted already")
    elif not is_there:
        say(f"bucket {given.name} is made, in {given.region}")
    if given.check and differs:
        return FAILED
    export, policy = bucket.exports(), bucket.policy()
    if given.json:
        policy = {"bucket": given.name, "region": given.region, "export": export, "policy": policy}
    else:
        print("".join(f"export {key}={shlex.quote(value)}\n" for key, value in export.items()), end="")
    print(json.dumps(policy, indent=2))
    return OK


def main(arguments: list[str]) -> int:
    parser = options()
    given: Any = parser.parse_args(arguments)
    if not given.name:
        parser.error("which bucket?")
    try:
        return settle(given)
    except ValueError as error:  # botocore's, of an address
        raise PipelineError(str(error)) from None
    except BotoCoreError as error:
        place = f"{given.service or 'https://s3.' + given.region + '.amazonaws.com'}/{given.name}"
        raise PipelineError(f"{place} cannot be asked: {error}", SERVICE) from None
