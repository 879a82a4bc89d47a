"""The builder of the Serve application: what a config file's arguments become. Without a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("ray", reason="needs the extra: pip install 'penstock[ray]'")

from ray.serve.schema import ServeDeploySchema

from deploy.ray import app as application
from deploy.ray.app import POLICY, ROUTER, EngineReplica, SingleModelReplica, app
from deploy.ray.routing import FewestRequestsRouter
from deploy.ray.scaling import QueueWaitPolicy
from deploy.ray.settings import RayAppError

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own

CONFIG = Path(application.__file__).with_name("app.yaml")


def built(**arguments: Any) -> Any:
    """The deployment of an application."""
    return app(arguments)._bound_deployment


def test_a_replica_reserves_its_gpus_together_on_one_node() -> None:
    deployment = built(model="m", tensor_parallel=4, num_gpus_per_rank=1, num_cpus=2)
    assert deployment.ray_actor_options["num_gpus"] == 4
    config = deployment._replica_config
    assert (config.placement_group_bundles, config.placement_group_strategy) == ([{"CPU": 2, "GPU": 4}], "STRICT_PACK")


def test_replicas_scale_by_the_queue_wait() -> None:
    scaling = built(model="m", scaling={"max_replicas": 7, "target_wait_s": 1.5})._deployment_config.autoscaling_config
    assert (scaling.min_replicas, scaling.max_replicas) == (1, 7)
    policy = scaling.policy
    assert (policy.policy_function, policy.policy_kwargs) == (POLICY, {"target_wait_s": 1.5})
    assert isinstance(policy.get_policy(), QueueWaitPolicy | type)


def test_proxies_choose_by_a_router_of_our_own() -> None:
    config = built(model="m")._deployment_config.request_router_config
    assert config.request_router_class == ROUTER
    assert config.get_request_router_class() is FewestRequestsRouter


def test_one_model_is_loaded_first_and_several_on_demand() -> None:
    assert built(model="m").func_or_class is SingleModelReplica
    several = built(models={"a": "m", "b": "n"}, max_models_per_replica=2).func_or_class
    assert issubclass(several, EngineReplica)
    assert hasattr(several, "load_model")


def test_a_wrong_argument_is_an_error() -> None:
    with pytest.raises(RayAppError, match="modle"):
        app({"modle": "m"})


def test_the_config_file_is_one_that_serve_reads_and_the_builder_takes() -> None:
    found = ServeDeploySchema.model_validate(yaml.safe_load(CONFIG.read_text()))
    assert [one.import_path for one in found.applications] == ["deploy.ray.app:app"]
    app(dict(found.applications[0].args))
