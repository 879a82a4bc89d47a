"""The Serve config that is sent to a cluster."""

from __future__ import annotations

import msgspec

from gateway.cli.cluster.serve_document import IMPORT_PATH, ServeDetails, application, serve_document


def test_an_application_names_the_builder_and_its_arguments() -> None:
    found = application("engine", {"model": "m"}, working_dir="s3://bucket/checkout.zip")
    assert (found["import_path"], found["args"]) == (IMPORT_PATH, {"model": "m"})
    assert found["runtime_env"] == {"working_dir": "s3://bucket/checkout.zip"}
    assert "runtime_env" not in application("engine", {})


def test_other_applications_stay_and_the_own_one_is_replaced() -> None:
    found = msgspec.convert(
        {
            "proxy_location": "HeadOnly",
            "http_options": {"host": "0.0.0.0", "port": 9000, "root_path": ""},
            "applications": {
                "shop": {"status": "RUNNING", "deployed_app_config": {"name": "shop", "import_path": "shop:app"}},
                "engine": {"status": "RUNNING", "deployed_app_config": {"name": "engine", "import_path": "old"}},
                "by-hand": {"status": "RUNNING", "deployed_app_config": None},
            },
        },
        ServeDetails,
    )
    own = application("engine", {"model": "m"})
    sent = serve_document(found, own, port=8000)
    assert sent["applications"] == [{"name": "shop", "import_path": "shop:app"}, own]
    assert (sent["proxy_location"], sent["http_options"]) == ("HeadOnly", {"host": "0.0.0.0", "port": 9000})


def test_a_cluster_without_serve_gets_a_proxy_on_every_node() -> None:
    sent = serve_document(ServeDetails(), application("engine", {}), port=8100)
    assert (sent["proxy_location"], sent["http_options"]["port"]) == ("EveryNode", 8100)
