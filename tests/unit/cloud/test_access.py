"""Endpoint and credentials of an object store are given once, for Spark and for delta-rs."""

from __future__ import annotations

import argparse

import pytest
from headwater_cloud import access, arguments, cli
from headwater_cloud.errors import LakeError

HADOOP = {
    "fs.s3a.endpoint": "http://10.0.0.9:9000",
    "fs.s3a.access.key": "key",
    "fs.s3a.secret.key": "secret",
    "fs.s3a.session.token": "token",
    "fs.s3a.endpoint.region": "eu-central-1",
    "fs.s3a.path.style.access": "true",
    "fs.s3a.connection.ssl.enabled": "false",
}
DELTA_RS = {
    "aws_endpoint_url": "http://10.0.0.9:9000",
    "aws_access_key_id": "key",
    "aws_secret_access_key": "secret",
    "aws_session_token": "token",
    "aws_region": "eu-central-1",
    "aws_allow_http": "true",
}


def test_what_is_given_in_hadoops_words_reaches_delta_rs() -> None:
    assert access.to_delta_rs(HADOOP) == DELTA_RS
    assert access.to_delta_rs({}) == {}


def test_what_is_given_in_delta_rs_words_reaches_hadoop() -> None:
    assert access.to_hadoop(DELTA_RS) == HADOOP
    assert access.to_hadoop({}) == {}


@pytest.mark.parametrize("name", ("AWS_ENDPOINT_URL", "aws_endpoint", "endpoint_url", "Endpoint"))
def test_an_option_of_delta_rs_may_have_any_of_its_names(name: str) -> None:
    assert access.to_hadoop({name: "https://store:9000"}) == {
        "fs.s3a.endpoint": "https://store:9000",
        "fs.s3a.connection.ssl.enabled": "true",
        "fs.s3a.path.style.access": "true",
    }


@pytest.mark.parametrize(
    ("said", "endpoint"),
    (
        ({"fs.s3a.endpoint": "store:9000"}, "https://store:9000"),
        ({"fs.s3a.endpoint": "store:9000", "fs.s3a.connection.ssl.enabled": "false"}, "http://store:9000"),
        # Amazon's own is found by its region, with the bucket in the host's name.
        ({"fs.s3a.endpoint": "s3.eu-central-1.amazonaws.com"}, None),
    ),
)
def test_an_endpoint_without_a_scheme_is_understood_as_hadoop_does(
    said: dict[str, str], endpoint: str | None
) -> None:
    options = access.to_delta_rs(said)
    assert options.get("aws_endpoint_url") == endpoint
    assert ("aws_allow_http" in options) == (endpoint is not None and endpoint.startswith("http:"))


def test_a_readers_own_words_beat_what_is_translated_for_it() -> None:
    conf = {"spark.hadoop.fs.s3a.access.key": "spark's"}
    storage = {"AWS_ACCESS_KEY_ID": "ours", "AWS_REGION": "r"}
    assert access.for_spark(conf, storage, {}) == {"spark.hadoop.fs.s3a.endpoint.region": "r"}
    assert access.for_delta_rs(conf, storage) == {"aws_access_key_id": "ours", "aws_region": "r"}
    assert access.for_delta_rs(conf, {}) == {"aws_access_key_id": "spark's"}


def test_the_environments_variables_reach_both(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {"AWS_ENDPOINT_URL": "http://store", "AWS_DEFAULT_REGION": "far", "AWS_ACCESS_KEY_ID": "k"}
    found = access.for_spark({}, {}, environment)
    assert found["spark.hadoop.fs.s3a.endpoint"] == "http://store"
    assert found["spark.hadoop.fs.s3a.endpoint.region"] == "far"
    # Both read keys by themselves; keys are not copied to where a log or a web page may show them.
    assert "spark.hadoop.fs.s3a.access.key" not in found
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://store")
    assert access.for_delta_rs({}, {}) == {"aws_allow_http": "true"}
    asked = access.for_spark({}, {"aws_endpoint_url": "https://other"}, environment)
    assert asked["spark.hadoop.fs.s3a.endpoint"] == "https://other"


def test_options_that_are_not_s3s_are_passed_on_as_they_are() -> None:
    assert access.for_delta_rs({}, {"azure_storage_account_key": "x"}) == {"azure_storage_account_key": "x"}
    assert access.for_spark({}, {"azure_storage_account_key": "x"}, {}) == {}


def test_arguments_give_both_and_a_word_that_is_no_pair_is_refused() -> None:
    parser = argparse.ArgumentParser()
    arguments.store(parser)
    args = parser.parse_args(["--storage", "AWS_REGION=r", "--conf", "spark.hadoop.fs.s3a.access.key=k=="])
    conf, storage = cli.store(args)
    assert conf["spark.hadoop.fs.s3a.endpoint.region"] == "r"
    at = cli.location(args, "s3a://bucket/lake")
    assert at.options == {"aws_region": "r", "aws_access_key_id": "k=="}
    assert at.rs == "s3://bucket/lake"
    with pytest.raises(LakeError, match="--storage AWS_REGION: write KEY=VALUE"):
        cli.store(parser.parse_args(["--storage", "AWS_REGION"]))
