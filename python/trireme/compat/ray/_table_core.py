"""ray, ray.util and the exceptions."""

from __future__ import annotations

from trireme.compat.ray import _accelerators
from trireme.compat.ray._names import RAY_VERSION, Module, adapted, module, refused
from trireme.compat.ray._tasks import _errors

_RAY = "trireme.compat.ray"
_TASKS = f"{_RAY}._tasks"
_GPU_TYPES = " ".join(name for name in vars(_accelerators) if not name.startswith("_"))
_ONE_MACHINE = "this machine is the cluster"
_REMOTE = {
    **adapted(f"{_TASKS}._remote", "remote method", "each task and actor is a process of this machine; no GPUs"),
    **adapted(f"{_TASKS}._api", "get put wait kill cancel get_actor", "references work on this machine"),
    **adapted(f"{_TASKS}._refs", "ObjectRef", "references work on this machine"),
}
_CONTEXT = adapted(f"{_TASKS}._where", "get_runtime_context", "ids of this machine's processes")
_ERRORS = adapted(f"{_TASKS}._errors", _errors.NAMES, "errors of tasks and actors; some are never raised")
_GROUPS = adapted(
    f"{_RAY}._placement",
    "PlacementGroup placement_group remove_placement_group get_placement_group placement_group_table "
    "get_current_placement_group",
    "checked against the machine's resources; reserves nothing",
)
_POOL = adapted(f"{_TASKS}._pool", "ActorPool", "")

CORE: dict[str, Module] = {
    "ray": module(
        adapted(f"{_RAY}._cluster", "init shutdown is_initialized", "declares capacity; starts no cluster"),
        adapted(f"{_RAY}._cluster", "cluster_resources available_resources nodes get_gpu_ids", _ONE_MACHINE),
        adapted(f"{_RAY}._names", "__version__=RAY_VERSION", f"{RAY_VERSION}: whose names are replaced"),
        _REMOTE,
        _CONTEXT,
        refused("java_function java_actor_class cpp_function", "use subprocess, or Trireme's C++ API"),
        adapted(f"{_TASKS}._refs", "ObjectID=ObjectRef", "references work on this machine"),
        adapted(f"{_RAY}._cluster", "LoggingConfig", "no effect: processes print to the driver's output"),
        refused(
            "ActorClassID ActorID FunctionID JobID NodeID PlacementGroupID TaskID UniqueID WorkerID",
            "ids are strings: get_runtime_context() has them",
        ),
        refused("Language SCRIPT_MODE WORKER_MODE widgets", "it is internal to Ray"),
        refused("timeline", "`trireme show` has the events of a run"),
        refused("ClientBuilder client", "Trireme starts no clusters"),
        refused("ObjectRefGenerator DynamicObjectRefGenerator", "return a list, or use ray.util.queue.Queue"),
    ),
    "ray.exceptions": module(_ERRORS),
    "ray.actor": module(
        adapted(f"{_TASKS}._remote", "ActorHandle ActorClass ActorMethod method", ""),
        adapted("builtins", "ActorClassInheritanceException=TypeError", ""),
        adapted(f"{_TASKS}._where", "exit_actor", ""),
    ),
    "ray.remote_function": module(adapted(f"{_TASKS}._remote", "RemoteFunction", "")),
    "ray.runtime_context": module(_CONTEXT, adapted(f"{_TASKS}._where", "RuntimeContext", "")),
    "ray.runtime_env": module(
        adapted(f"{_RAY}._runtime_env", "RuntimeEnv", "env_vars, working_dir and py_modules of this machine"),
        refused("RuntimeEnvConfig", "processes start at once; there is nothing to set up"),
    ),
    "ray.util": module(
        _GROUPS,
        _POOL,
        adapted(f"{_TASKS}._api", "as_completed list_named_actors map_unordered", ""),
        adapted(f"{_RAY}._annotations", "log_once disable_log_once_globally enable_periodic_logging", ""),
        adapted(f"{_RAY}._placement", "get_node_ip_address", _ONE_MACHINE),
        refused("get_node_instance_id", "this machine is the cluster: socket.gethostname() names it"),
        refused("inspect_serializability", "fit() and .remote() name the object that cannot be pickled"),
        refused("pdb ray_debugpy", "use breakpoint() with num_workers=0"),
        refused("register_serializer deregister_serializer", "define __reduce__ on the class"),
        refused("connect disconnect", "Trireme starts no clusters"),
    ),
    "ray.util.actor_pool": module(_POOL),
    "ray.util.queue": module(adapted(f"{_TASKS}._queue", "Queue Empty Full", "")),
    "ray.util.placement_group": module(_GROUPS),
    "ray.util.scheduling_strategies": module(
        adapted(
            f"{_RAY}._placement",
            "PlacementGroupSchedulingStrategy NodeAffinitySchedulingStrategy",
            _ONE_MACHINE,
        ),
        refused("NodeLabelSchedulingStrategy In NotIn Exists DoesNotExist", "all tasks run on this machine"),
    ),
    "ray.util.metrics": module(
        adapted(f"{_RAY}._metrics", "Counter Gauge Histogram", "values stay in the process; report() exports metrics")
    ),
    "ray.util.accelerators": module(
        adapted(f"{_RAY}._accelerators", _GPU_TYPES, "the type of a GPU"),
        refused(
            "APPLE_M1 APPLE_M1_MAX APPLE_M1_PRO APPLE_M1_ULTRA APPLE_M2 APPLE_M2_MAX APPLE_M2_PRO APPLE_M2_ULTRA "
            "APPLE_M3 APPLE_M3_MAX APPLE_M3_PRO APPLE_SILICON AWS_NEURON_CORE GOOGLE_TPU_V2 GOOGLE_TPU_V3 "
            "GOOGLE_TPU_V4 GOOGLE_TPU_V5LITEPOD GOOGLE_TPU_V5P GOOGLE_TPU_V6E GOOGLE_TPU_V7X METAX_C500 METAX_C550 "
            "MOBILINT_ARIES MOBILINT_REGULUS tpu",
            "workers run on CPUs and on GPUs that torch calls cuda",
        ),
    ),
    "ray.util.debug": module(
        adapted(f"{_RAY}._annotations", "log_once disable_log_once_globally enable_periodic_logging", "")
    ),
    "ray.util.annotations": module(
        adapted(f"{_RAY}._annotations", "PublicAPI DeveloperAPI Deprecated", "decorators without an effect"),
        adapted(f"{_RAY}._annotations", "RayDeprecationWarning", "never raised"),
    ),
}
