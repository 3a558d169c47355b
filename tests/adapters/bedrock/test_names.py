"""What ids and ARNs say."""

from __future__ import annotations

import pytest

from isthmus.adapters.bedrock.names import HOSTS, domain_of, path_of, region_of, vendor_of, wire_id

PROFILE = "arn:aws:bedrock:eu-west-1:123456789012:application-inference-profile/1arbu5hu2sj"


@pytest.mark.parametrize(
    ("model", "vendor"),
    [
        ("anthropic.claude-sonnet-5", "anthropic"),
        ("us.anthropic.claude-sonnet-5", "anthropic"),
        ("global.anthropic.claude-opus-4-8", "anthropic"),
        ("us-gov.anthropic.claude-3-haiku-20240307-v1:0", "anthropic"),
        ("arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-v2:1", "anthropic"),
        ("arn:aws:bedrock:us-east-1:1:inference-profile/eu.anthropic.claude-sonnet-5", "anthropic"),
        ("meta.llama3-8b-instruct-v1:0", "meta"),
        (PROFILE, ""),
        ("arn:aws:sagemaker:us-east-1:1:endpoint/mine", ""),
    ],
)
def test_the_vendor_is_seen_through_prefixes_and_arns(model, vendor):
    """Prefixes of regions and ARNs don't hide whose model it is; an opaque ARN says nothing."""
    assert vendor_of(model) == vendor


def test_an_arn_names_its_region():
    """The region stands in an ARN, of Bedrock's or SageMaker's, and in no plain id."""
    assert region_of(PROFILE) == "eu-west-1"
    assert region_of("arn:aws-us-gov:bedrock:us-gov-west-1:1:inference-profile/x") == "us-gov-west-1"
    assert region_of("us.anthropic.claude-sonnet-5") is None


def test_paths_are_quoted_whole():
    """Colons and slashes of an id or ARN are quoted, as the recorded requests of botocore have them."""
    assert path_of("amazon.nova-lite-v1:0", "invoke") == "/model/amazon.nova-lite-v1%3A0/invoke"
    assert path_of(PROFILE, "converse").count("/") == 3


def test_ids_are_made_legal():
    """Ids of other providers become 1 to 64 legal characters, the same each time, different for different ids."""
    long = "call_" + "x" * 80
    assert wire_id("tooluse_a.b:c-1") == "tooluse_a.b:c-1"
    assert len(wire_id(long)) <= 64
    assert wire_id(long) == wire_id(long) != wire_id(long + "y")
    assert wire_id("a b|c").isascii()
    assert " " not in wire_id("a b|c")


def test_regions_have_the_domains_of_botocores_own_list():
    """Each partition's regions lead to its own domain, for which the machine's credentials are."""
    loaders = pytest.importorskip("botocore.loaders")
    partitions = loaders.Loader().load_data("partitions")["partitions"]
    found = {region: entry["outputs"]["dnsSuffix"] for entry in partitions for region in entry["regions"]}
    regions = [region for region in found if not region.endswith("-global")]
    assert {region: domain_of(region) for region in regions} == {region: found[region] for region in regions}
    assert {f".{domain}" for domain in found.values()} <= set(HOSTS)
