"""`trireme manifest`: what it prints satisfies the schemas of Kubernetes, JobSet and KubeRay. No cluster runs it."""

from __future__ import annotations

import shlex
import subprocess
import sys
from typing import Any

import jsonschema
import kubernetes_validate
import pydantic
import pytest
import yaml
from kubeflow_trainer_api.models import JobsetV1alpha2JobSet

IMAGE = ["--image", "registry.example/train:1.2"]


def manifest(*arguments: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "trireme._cli", "manifest", *IMAGE, *arguments]
    return list(yaml.safe_load_all(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def refusal(*arguments: str) -> str:
    run = subprocess.run([sys.executable, "-m", "trireme._cli", "manifest", *arguments], capture_output=True, text=True)
    assert run.returncode == 2 and not run.stdout
    return run.stderr


def pod_of(container_pod: dict[str, Any]) -> dict[str, Any]:
    """A pod that the schemas of Kubernetes know, around the specification of one in a custom resource."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": container_pod}


def strict(**properties: Any) -> dict[str, Any]:
    """All properties are required, others are refused."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def expect_job_set(document: dict[str, Any]) -> None:
    """The models that the Kubeflow project generates from JobSet's API drop unknown fields, and check the types."""
    assert JobsetV1alpha2JobSet.from_dict(document).to_dict() == document


TEXT, COUNT, ANY = {"type": "string", "minLength": 1}, {"type": "integer", "minimum": 0}, {"type": "object"}
# The fields that we use of https://github.com/ray-project/kuberay, ray-operator/apis/ray/v1. No package has its schema.
RAY_PARAMETERS = {"type": "object", "additionalProperties": {"type": "string"}}
RAY_GROUP = strict(
    groupName=TEXT,
    replicas=COUNT,
    minReplicas=COUNT,
    maxReplicas=COUNT,
    rayStartParams=RAY_PARAMETERS,
    template=strict(spec=ANY),
)
RAY_JOB = strict(
    entrypoint=TEXT,
    shutdownAfterJobFinishes={"type": "boolean"},
    rayClusterSpec=strict(
        headGroupSpec=strict(rayStartParams=RAY_PARAMETERS, template=strict(spec=ANY)),
        workerGroupSpecs={"type": "array", "items": RAY_GROUP},
    ),
)


def validate(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, "1.30", strict=True)


def test_a_job() -> None:
    (job,) = manifest(
        "--name",
        "train",
        "--num-gpus",
        "8",
        "--num-cpus",
        "1.5",
        "--claim",
        "c",
        "--mount",
        "/data",
        "t.py",
        "--lr",
        "0.1",
    )
    validate(job)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["trireme", "run", "t.py", "--lr", "0.1"]
    assert container["resources"]["limits"] == {"cpu": "1.5", "memory": "16Gi", "nvidia.com/gpu": 8}
    assert {mount["mountPath"] for mount in container["volumeMounts"]} == {"/dev/shm", "/data"}
    with pytest.raises(kubernetes_validate.ValidationError):
        validate({**job, "spec": {**job["spec"], "backofLimit": 1}})


def test_a_job_set() -> None:
    *permissions, jobs = manifest("--kind", "jobset", "--name", "train", "--namespace", "ml", "--nodes", "2", "t.py")
    for document in permissions:
        validate(document)
    assert [document["kind"] for document in permissions] == ["ServiceAccount", "Role", "RoleBinding"]
    assert (jobs["apiVersion"], jobs["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert jobs["metadata"] == {"name": "train", "namespace": "ml"}
    expect_job_set(jobs)
    with pytest.raises(AssertionError):
        expect_job_set({**jobs, "spec": {**jobs["spec"], "replicas": 1}})
    with pytest.raises(pydantic.ValidationError):
        expect_job_set({**jobs, "spec": {**jobs["spec"], "failurePolicy": {"maxRestarts": "three"}}})
    policies = (jobs["spec"]["startupPolicy"]["startupPolicyOrder"], jobs["spec"]["successPolicy"]["operator"])
    assert policies == ("InOrder", "All")
    replicated = {job["name"]: job for job in jobs["spec"]["replicatedJobs"]}
    for job in replicated.values():
        validate({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, **job["template"]})
    assert {name: job["replicas"] for name, job in replicated.items()} == {"node": 2, "driver": 1}
    driver = replicated["driver"]["template"]["spec"]["template"]["spec"]
    assert driver["serviceAccountName"] == "train"
    command = driver["containers"][0]["command"]
    # The driver starts the agents in the pods of these jobs.
    assert command[:4] == ["trireme", "run", "--engine", "hosts:job/train-node-0,job/train-node-1"]
    assert command[4:] == ["--engine-option", "launcher=kubectl exec -i {host} -- {command}", "t.py"]


def test_a_ray_job() -> None:
    (job,) = manifest("--kind", "rayjob", "--nodes", "3", "--num-gpus", "2", "t.py", "--name", "it's $HOME")
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    jsonschema.validate(job["spec"], RAY_JOB)
    assert shlex.split(job["spec"]["entrypoint"]) == [
        "trireme",
        "run",
        "--engine",
        "ray",
        "t.py",
        "--name",
        "it's $HOME",
    ]
    cluster = job["spec"]["rayClusterSpec"]
    (group,) = cluster["workerGroupSpecs"]
    assert group["replicas"] == group["minReplicas"] == group["maxReplicas"] == 3
    for pod in (cluster["headGroupSpec"]["template"]["spec"], group["template"]["spec"]):
        validate(pod_of(pod))
    limits = [
        p["containers"][0]["resources"]["limits"]
        for p in (cluster["headGroupSpec"]["template"]["spec"], group["template"]["spec"])
    ]
    assert [limit.get("nvidia.com/gpu") for limit in limits] == [None, 2]


def test_values_stay_strings() -> None:
    (job,) = manifest("t.py", "yes", "1e3", "", "a: b", "# no", "- x", "\t", "null")
    assert job["spec"]["template"]["spec"]["containers"][0]["command"][3:] == [
        "yes",
        "1e3",
        "",
        "a: b",
        "# no",
        "- x",
        "\t",
        "null",
    ]


def test_refusals() -> None:
    assert "a Job has one node; use --kind jobset or --kind rayjob" in refusal(*IMAGE, "--nodes", "2", "t.py")
    assert "no script" in refusal(*IMAGE)
    assert "--claim and --mount go together" in refusal(*IMAGE, "--claim", "c", "t.py")
    assert "'My_Run' must have at most 40 lower-case letters" in refusal(*IMAGE, "--name", "My_Run", "t.py")
    assert "--image is required" in refusal("t.py")
