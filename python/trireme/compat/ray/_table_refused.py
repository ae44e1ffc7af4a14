"""Modules of Ray that Trireme does not replace."""

from __future__ import annotations

from trireme.compat.ray._names import Module, refused_module

_CLUSTERS = "Trireme starts no clusters; `trireme run --engine` uses the nodes of one (docs/clusters.md)"

REFUSED: dict[str, Module] = {
    "ray.serve": refused_module("Trireme trains models and does not serve them; run this part of the script with Ray"),
    "ray.rllib": refused_module("Trireme has no reinforcement learning; run this script with Ray"),
    "ray.workflow": refused_module("call the functions in order, or use a workflow system around the script"),
    "ray.dag": refused_module("call the functions directly: ray.remote works"),
    "ray.llm": refused_module("Trireme trains models and does not serve them"),
    "ray.data.llm": refused_module("call the model in a function of Dataset.map_batches()"),
    "ray.autoscaler": refused_module(_CLUSTERS),
    "ray.cluster_utils": refused_module(_CLUSTERS),
    "ray.job_submission": refused_module("run the script with `trireme run`, and list runs with `trireme runs`"),
    "ray.dashboard": refused_module("`trireme show` and `trireme runs` show runs"),
    "ray.scripts": refused_module(_CLUSTERS),
    "ray.client_builder": refused_module(_CLUSTERS),
    "ray.experimental": refused_module("it has no equivalent in Trireme"),
    "ray.internal": refused_module("it has no equivalent in Trireme"),
    "ray._private": refused_module("it is private to Ray; use the public names"),
    "ray._raylet": refused_module("it is private to Ray; use the public names"),
    "ray.cross_language": refused_module("call C++ programs with subprocess, or use Trireme's C++ API"),
    "ray.util.client": refused_module(_CLUSTERS),
    "ray.util.spark": refused_module(_CLUSTERS),
    "ray.util.dask": refused_module("use Dask's own schedulers; trireme.data.from_dask() reads the result"),
    "ray.util.joblib": refused_module("use joblib's own backends"),
    "ray.util.multiprocessing": refused_module("use multiprocessing.Pool, which has the same interface"),
    "ray.util.collective": refused_module("use torch.distributed, or ray.train.collective"),
    "ray.util.state": refused_module("`trireme show` and `trireme runs` show runs"),
    "ray.util.sgd": refused_module("Ray has removed it; use ray.train.torch.TorchTrainer"),
    "ray.util.iter": refused_module("use ray.data"),
    "ray.util.rpdb": refused_module("use breakpoint() with num_workers=0"),
    "ray.util.tpu": refused_module("TPUs are not supported"),
}
