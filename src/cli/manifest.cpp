#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/script.h"

// Manifests for Kubernetes, as YAML on the standard output.

namespace trireme::cli {
namespace {

using Json = nlohmann::ordered_json;

bool is_plain(const std::string& text) {
  static constexpr const char* kOtherValues[] = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"};
  auto lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  if (std::find(std::begin(kOtherValues), std::end(kOtherValues), lower) != std::end(kOtherValues)) return false;
  return !text.empty() && (std::isalpha(static_cast<unsigned char>(text[0])) || text[0] == '/') &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-") ==
             std::string::npos;
}

// A JSON string is a valid YAML string.
std::string scalar(const Json& value) {
  if (value.is_string() && is_plain(value.get<std::string>())) return value.get<std::string>();
  return value.dump();
}

void write_yaml(std::string& out, const Json& value, std::size_t indent, bool in_list) {
  const std::string margin(indent, ' ');
  bool first = in_list;  // the first line follows "- "
  for (const auto& [key, each] : value.items()) {
    const auto start = first ? std::string() : margin;
    first = false;
    if (value.is_array()) {
      out += start + "- ";
      if (each.is_structured() && !each.empty()) {
        write_yaml(out, each, indent + 2, true);
      } else {
        out += scalar(each) + "\n";
      }
    } else if (each.is_structured() && !each.empty()) {
      out += start + scalar(key) + ":\n";
      write_yaml(out, each, indent + 2, false);
    } else {
      out += start + scalar(key) + ": " + scalar(each) + "\n";
    }
  }
}

Json metadata(const ManifestOptions& options) {
  Json result = {{"name", options.name}};
  if (!options.name_space.empty()) result["namespace"] = options.name_space;
  return result;
}

// The resources of a node's container, and the memory and storage that its workers share.
Json node_pod(const ManifestOptions& options, const std::string& container, const std::vector<std::string>& command) {
  Json limits = {{"cpu", fmt::format("{}", options.num_cpus)}, {"memory", options.memory}};
  if (options.num_gpus > 0) limits["nvidia.com/gpu"] = options.num_gpus;
  Json one = {{"name", container}, {"image", options.image}};
  if (!command.empty()) one["command"] = command;
  one["resources"] = {{"requests", limits}, {"limits", limits}};
  // The default of 64 MiB is too little for data loaders and NCCL.
  one["volumeMounts"] = Json::array({{{"name", "shm"}, {"mountPath", "/dev/shm"}}});
  Json volumes = Json::array({{{"name", "shm"}, {"emptyDir", {{"medium", "Memory"}}}}});
  if (!options.claim.empty()) {
    one["volumeMounts"].push_back({{"name", "storage"}, {"mountPath", options.mount}});
    volumes.push_back({{"name", "storage"}, {"persistentVolumeClaim", {{"claimName", options.claim}}}});
  }
  return {{"containers", Json::array({one})}, {"volumes", volumes}};
}

// Pods of a Job are not restarted in place: the run resumes in a new pod. On SIGTERM there is a minute for a last
// checkpoint.
Json job_pod(Json pod) {
  pod["restartPolicy"] = "Never";
  pod["terminationGracePeriodSeconds"] = 60;
  return pod;
}

Json job_spec(const Json& pod, int retries) { return {{"backoffLimit", retries}, {"template", {{"spec", pod}}}}; }

std::vector<std::string> command_of(const ManifestOptions& options, std::vector<std::string> more) {
  std::vector<std::string> command = {"trireme", "run"};
  command.insert(command.end(), more.begin(), more.end());
  command.insert(command.end(), options.script.begin(), options.script.end());
  return command;
}

std::vector<Json> job(const ManifestOptions& options) {
  const auto pod = job_pod(node_pod(options, "driver", command_of(options, {})));
  return {{{"apiVersion", "batch/v1"}, {"kind", "Job"}, {"metadata", metadata(options)}, {"spec", job_spec(pod, 3)}}};
}

// The driver starts the agents with `kubectl exec` in pods that wait, so it may use that, and nothing else.
std::vector<Json> permission_to_exec(const ManifestOptions& options) {
  Json name = metadata(options);
  const Json rules = {
      {{"apiGroups", {""}}, {"resources", {"pods"}}, {"verbs", {"get", "list"}}},
      {{"apiGroups", {""}}, {"resources", {"pods/exec"}}, {"verbs", {"create"}}},
      {{"apiGroups", {"batch"}}, {"resources", {"jobs"}}, {"verbs", {"get"}}},
  };
  Json subject = {{"kind", "ServiceAccount"}, {"name", options.name}};
  if (!options.name_space.empty()) subject["namespace"] = options.name_space;
  const std::string rbac = "rbac.authorization.k8s.io";
  return {
      {{"apiVersion", "v1"}, {"kind", "ServiceAccount"}, {"metadata", name}},
      {{"apiVersion", rbac + "/v1"}, {"kind", "Role"}, {"metadata", name}, {"rules", rules}},
      {{"apiVersion", rbac + "/v1"},
       {"kind", "RoleBinding"},
       {"metadata", name},
       {"subjects", Json::array({subject})},
       {"roleRef", {{"apiGroup", rbac}, {"kind", "Role"}, {"name", options.name}}}},
  };
}

std::vector<Json> job_set(const ManifestOptions& options) {
  std::string hosts = "hosts:";
  for (int node = 0; node < options.nodes; ++node) {
    hosts += fmt::format("{}job/{}-node-{}", node ? "," : "", options.name, node);
  }
  auto driver = job_pod(node_pod(
      options, "driver",
      command_of(options, {"--engine", hosts, "--engine-option", "launcher=kubectl exec -i {host} -- {command}"})));
  // The driver computes little: the nodes have the resources.
  driver["containers"][0].erase("resources");
  driver["serviceAccountName"] = options.name;
  const auto node = job_pod(node_pod(options, "node", {"sleep", "infinity"}));
  const auto replicated = [](const char* name, int replicas, const Json& pod) {
    return Json{{"name", name}, {"replicas", replicas}, {"template", {{"spec", job_spec(pod, 0)}}}};
  };
  Json spec = {
      {"startupPolicy", {{"startupPolicyOrder", "InOrder"}}},
      {"successPolicy", {{"operator", "All"}, {"targetReplicatedJobs", {"driver"}}}},
      {"failurePolicy", {{"maxRestarts", 3}}},
  };
  spec["replicatedJobs"] = Json::array({replicated("node", options.nodes, node), replicated("driver", 1, driver)});
  auto all = permission_to_exec(options);
  all.push_back({{"apiVersion", "jobset.x-k8s.io/v1alpha2"},
                 {"kind", "JobSet"},
                 {"metadata", metadata(options)},
                 {"spec", spec}});
  return all;
}

std::string for_a_shell(const std::vector<std::string>& words) {
  std::string line;
  for (const auto& word : words) {
    std::string quoted = word;
    if (!is_plain(word) && !(word.starts_with("--") && is_plain(word.substr(2)))) {
      quoted = "'";
      for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
      quoted += "'";
    }
    line += (line.empty() ? "" : " ") + quoted;
  }
  return line;
}

std::vector<Json> ray_job(const ManifestOptions& options) {
  Json head = node_pod(options, "ray-head", {});
  const Json group = {
      {"groupName", "node"},
      {"replicas", options.nodes},
      {"minReplicas", options.nodes},
      {"maxReplicas", options.nodes},
      {"rayStartParams", Json::object()},
      {"template", {{"spec", node_pod(options, "ray-worker", {})}}},
  };
  // No worker runs on the head, which needs no GPU.
  for (const char* which : {"requests", "limits"}) head["containers"][0]["resources"][which].erase("nvidia.com/gpu");
  const Json cluster = {
      {"headGroupSpec", {{"rayStartParams", {{"num-cpus", "0"}}}, {"template", {{"spec", head}}}}},
      {"workerGroupSpecs", Json::array({group})},
  };
  const Json spec = {
      {"entrypoint", for_a_shell(command_of(options, {"--engine", "ray"}))},
      {"shutdownAfterJobFinishes", true},
      {"rayClusterSpec", cluster},
  };
  return {{{"apiVersion", "ray.io/v1"}, {"kind", "RayJob"}, {"metadata", metadata(options)}, {"spec", spec}}};
}

}  // namespace

std::string kubernetes_name_problem(const std::string& text) {
  const bool good = !text.empty() && text.size() <= 40 && std::isalpha(static_cast<unsigned char>(text[0])) &&
                    text.back() != '-' &&
                    text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string::npos;
  return good ? std::string()
              : fmt::format("'{}' must have at most 40 lower-case letters, digits and '-', and begin with a letter",
                            text);
}

base::Result<int> manifest(const ManifestOptions& options) {
  // The script is in the image, not necessarily on this machine.
  if (options.script.empty()) return wrong_usage(base::error("no script given: {}", usage_of("manifest")));
  if (options.kind == "job" && options.nodes > 1) {
    return wrong_usage(
        base::error("--nodes {}: a Job has one node; use --kind jobset or --kind rayjob", options.nodes));
  }
  if (options.claim.empty() != options.mount.empty()) {
    return wrong_usage(base::error("--claim and --mount go together: set both or neither"));
  }
  const auto documents = options.kind == "job"      ? job(options)
                         : options.kind == "jobset" ? job_set(options)
                                                    : ray_job(options);
  std::string text;
  for (const auto& document : documents) {
    if (!text.empty()) text += "---\n";
    write_yaml(text, document, 0, false);
  }
  fmt::print("{}", text);
  return kDone;
}

}  // namespace trireme::cli
