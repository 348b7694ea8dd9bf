"""How an object store is reached: endpoint and credentials, given once, for Spark and for delta-rs.

Spark reaches a store through Hadoop's file systems (`fs.s3a.*` in its configuration), delta-rs through
options of its own (`AWS_*`). TABLE translates a setting in the words of one into those of the other. A
setting in a reader's own words overrides a translated one, and both override the environment's AWS_*
variables.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from .location import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

S3A = "fs.s3a."
SPARK = "spark.hadoop."

# Hadoop's name after `fs.s3a.`, the name in delta-rs's options after `aws_`.
TABLE = (
    ("access.key", "access_key_id"),
    ("secret.key", "secret_access_key"),
    ("session.token", "session_token"),
    ("endpoint.region", "region"),
    ("endpoint", "endpoint_url"),
)
# Other names that delta-rs accepts for the same.
ALIASES = {"endpoint": "endpoint_url", "default_region": "region", "token": "session_token"}
PATH_STYLE = "path.style.access"  # delta-rs: virtual_hosted_style_request, the opposite
TLS = "connection.ssl.enabled"  # delta-rs: the endpoint's scheme, and allow_http
VIRTUAL_HOSTED, ALLOW_HTTP = "virtual_hosted_style_request", "allow_http"
HADOOP_NAMES = (*(name for name, _ in TABLE), PATH_STYLE, TLS)


def to_delta_rs(hadoop: Mapping[str, str]) -> dict[str, str]:
    """The options of delta-rs that correspond to these settings of Hadoop (`fs.s3a.…`)."""
    said = {name: hadoop[S3A + name] for name in HADOOP_NAMES if hadoop.get(S3A + name)}
    options = {"aws_" + ours: said[name] for name, ours in TABLE if name in said}
    endpoint = options.get("aws_endpoint_url")
    if endpoint is not None:
        if "://" not in endpoint:
            endpoint = ("http://" if said.get(TLS) == "false" else "https://") + endpoint
            options["aws_endpoint_url"] = endpoint
        if urlsplit(endpoint).scheme == "http":
            options["aws_" + ALLOW_HTTP] = "true"
        if said.get(PATH_STYLE) != "true" and _is_amazon(endpoint):
            # Amazon's own, with the bucket in the host's name: delta-rs finds it by the region.
            del options["aws_endpoint_url"]
    return options


def to_hadoop(options: Mapping[str, str]) -> dict[str, str]:
    """The settings of Hadoop (`fs.s3a.…`) that correspond to these options of delta-rs."""
    said = _plain(options)
    settings = {S3A + name: said[ours] for name, ours in TABLE if said.get(ours)}
    endpoint = said.get("endpoint_url")
    if endpoint:
        settings[S3A + TLS] = "false" if endpoint.startswith("http://") else "true"
        settings[S3A + PATH_STYLE] = "false" if said.get(VIRTUAL_HOSTED) == "true" else "true"
    return settings


def for_spark(
    conf: Mapping[str, str], storage: Mapping[str, str], environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """What Spark's configuration needs beside `conf` to reach the store that these describe."""
    environment = os.environ if environment is None else environment
    # s3a reads keys from the environment by itself, and then the roles of a machine; not so an endpoint.
    places = {key: value for key, value in _of(environment).items() if key in ("endpoint_url", "region")}
    found = to_hadoop({**places, **_plain(storage)})
    return {SPARK + key: value for key, value in found.items() if SPARK + key not in conf}


def for_delta_rs(conf: Mapping[str, str], storage: Mapping[str, str]) -> dict[str, str]:
    """delta-rs's options by `spark.hadoop.fs.s3a.…` of Spark's configuration and by its own."""
    hadoop = {key.removeprefix(SPARK): value for key, value in conf.items() if key.startswith(SPARK)}
    return _canonical({**to_delta_rs(hadoop), **_canonical(storage)})


def of_session(spark: SparkSession, storage: Mapping[str, str] | None = None) -> dict[str, str]:
    """delta-rs's options by what this session's Hadoop has, wherever it was set, and by `storage`."""
    configuration: Any = spark._jsc.hadoopConfiguration()
    hadoop = {S3A + name: configuration.get(S3A + name) for name in HADOOP_NAMES}
    return _canonical({**to_delta_rs({k: v for k, v in hadoop.items() if v}), **_canonical(storage or {})})


def locate(spark: SparkSession, path: str | Path, storage: Mapping[str, str] | None = None) -> Location:
    """A place as this session and delta-rs both reach it."""
    at = Location.of(path)
    return at if at.local is not None else Location.of(path, of_session(spark, storage))


def _plain(options: Mapping[str, str]) -> dict[str, str]:
    """Options by delta-rs's names, without the prefix that they may have and in lower case."""
    found = {key.lower().removeprefix("aws_"): value for key, value in options.items()}
    return {ALIASES.get(key, key): value for key, value in found.items()}


_NAMES = {*(ours for _, ours in TABLE), VIRTUAL_HOSTED, ALLOW_HTTP}


def _canonical(options: Mapping[str, str]) -> dict[str, str]:
    """Options by one name each, so that of two that mean the same thing the later one counts."""
    out = {}
    for key, value in options.items():
        (name,) = _plain({key: value})
        out["aws_" + name if name in _NAMES else key] = value
    # delta-rs reads the environment by itself, but needs an option to allow a plain connection.
    endpoint = out.get("aws_endpoint_url") or _of(os.environ).get("endpoint_url", "")
    if endpoint.startswith("http://"):
        out.setdefault("aws_" + ALLOW_HTTP, "true")
    return out


def _of(environment: Mapping[str, str]) -> dict[str, str]:
    aws = {key: value for key, value in environment.items() if key.startswith("AWS_") and value}
    if "AWS_ENDPOINT_URL_S3" in aws:  # of this service alone, so it takes precedence
        aws["AWS_ENDPOINT_URL"] = aws["AWS_ENDPOINT_URL_S3"]
    if "AWS_REGION" in aws:
        aws.pop("AWS_DEFAULT_REGION", None)
    return _plain(aws)


def _is_amazon(endpoint: str) -> bool:
    return (urlsplit(endpoint).hostname or "").endswith((".amazonaws.com", ".amazonaws.com.cn"))
