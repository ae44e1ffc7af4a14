#include "agent/memory_server.h"

#include <doctest/doctest.h>

#include <chrono>
#include <future>
#include <thread>

#include "control/memory_collector.h"
#include "storage/digest.h"
#include "storage/local_files.h"
#include "unit/temp_dir.h"
#include "wire/secret.h"
#include "worker/node_memory.h"

namespace memory_server_test {

using namespace trireme;
using agent::MemoryServer;
using trireme::tests::append_file;
using trireme::tests::TempDir;

namespace {

const std::string kBig(9 << 20, 'x');  // three blocks

// The agents of nodes 1, 2, ..., as an engine starts and connects them.
struct Nodes {
  explicit Nodes(int count) {
    for (int number = 1; number <= count; ++number) start(number);
    connect();
  }
  void start(int number) {
    wire::Address listen;
    listen.kind = wire::Address::Kind::kTls;
    listen.host = "127.0.0.1";
    agents[number] = MemoryServer::start({"engine", number, secret, listen}).value();
  }
  void connect() {
    wire::Variables addresses;
    for (const auto& [number, agent] : agents) addresses[std::to_string(number)] = agent->address().text();
    for (const auto& [number, agent] : agents) agent->set_agents(addresses);
  }
  void lose(int number) {
    agents.erase(number);
    connect();
  }
  // A worker's view from that node.
  worker::NodeMemory worker(int number, std::int64_t limit = -1) const {
    wire::FileClient::Peer peer{
        "the agent's memory", agents.at(number)->worker_address(), agents.at(number)->worker_secret(), {}};
    peer.hello.run_id = "run";
    peer.hello.role = "storage";
    return {std::move(peer), {"run", "/results/run", limit}};
  }
  std::string put(const std::string& name, const std::string& content) const {
    append_file(dir / name, content);
    return dir / name;
  }
  std::unique_ptr<control::MemoryCollector> collector() const {
    return std::make_unique<control::MemoryCollector>("run", dir.path().native(), [this] {
      engine::NodeMemory access{"engine", secret, {}};
      for (const auto& [number, agent] : agents) access.addresses.push_back(agent->address().text());
      return access;
    });
  }

  std::string secret = wire::random_bytes(wire::kSecretSize);
  TempDir dir;
  std::map<int, std::unique_ptr<MemoryServer>> agents;
};

using Sizes = std::map<std::string, std::int64_t>;

template <typename T>
std::string message_of(const base::Result<T>& result) {
  return result ? "" : result.error().message();
}

constexpr const char* kCheckpoint = "/results/run/checkpoint_000004";

template <typename Condition>
bool wait_for(Condition condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

// Waits for the folder or the error of one collection.
base::Result<std::string> collect(control::MemoryCollector& collector, const std::vector<storage::FileRecord>& files,
                                  int attempt = 0) {
  std::promise<base::Result<std::string>> collected;
  collector.collect({{attempt, 4}, files}, [&](base::Result<std::string> folder) { collected.set_value(folder); });
  return collected.get_future().get();
}

}  // namespace

TEST_CASE("a worker's files are in the memory of two nodes, and every node can read them") {
  const Nodes nodes(3);
  auto worker = nodes.worker(2);
  const auto held =
      worker.hold(4, 0, {{"a/model", nodes.put("model", kBig)}, {"empty", nodes.put("empty", "")}}).value();
  CHECK(held.nodes == 2);
  REQUIRE(held.files.size() == 2);
  CHECK(held.files[0] == storage::FileRecord{"a/model", kBig.size(), storage::digest_of(kBig)});
  CHECK(held.files[1] == storage::FileRecord{"empty", 0, storage::digest_of("")});
  for (int node = 1; node <= 3; ++node) {
    CAPTURE(node);
    auto reader = nodes.worker(node);
    CHECK(reader.list(kCheckpoint).value() == Sizes{{"a/model", kBig.size()}, {"empty", 0}});
    CHECK(reader.list(std::string(kCheckpoint) + "/a").value() == Sizes{{"model", kBig.size()}});
    CHECK(reader.list(std::string(kCheckpoint) + "/empty").value() == Sizes{{"", 0}});
    CHECK(reader.fetch(std::string(kCheckpoint) + "/a/model", 100, 50).value() == kBig.substr(100, 50));
    CHECK(reader.fetch(std::string(kCheckpoint) + "/a/model", kBig.size(), 50).value() == "");
    CHECK(reader.fetch(std::string(kCheckpoint) + "/b", 0, 50).value() == std::nullopt);
  }
}

TEST_CASE("only checkpoints with derived names are looked up") {
  const Nodes nodes(1);
  auto worker = nodes.worker(1);
  REQUIRE(worker.hold(4, 0, {{"model", nodes.put("model", "m")}}));
  for (const char* path :
       {"/results/run/checkpoint_4", "/results/run/slot", "/results/run", "/elsewhere/checkpoint_000004"}) {
    CAPTURE(path);
    CHECK(worker.list(path).value().empty());
    CHECK(worker.fetch(std::string(path) + "/model", 0, 1).value() == std::nullopt);
  }
}

TEST_CASE("the only node holds the only copy, until another one joins") {
  Nodes nodes(1);
  auto worker = nodes.worker(1);
  CHECK(worker.hold(4, 0, {{"model", nodes.put("model", "content")}}).value().nodes == 1);
  nodes.start(2);
  nodes.connect();
  auto collector = nodes.collector();
  // Node 2 has a copy as soon as node 1 is not needed any more.
  CHECK(wait_for([&] {
    wire::FileClient::Peer peer{"agent 2", nodes.agents.at(2)->address(), nodes.secret, {}};
    peer.hello.role = "memory";
    wire::FileRequest request;
    request.call = "fetch";
    request.path = "run/4/model";
    request.size = 100;
    const auto answer = wire::FileClient(std::move(peer)).call(std::move(request));
    return answer && !answer->is_null();
  }));
  nodes.lose(1);
  CHECK(collect(*collector, {{"model", 7, storage::digest_of("content")}}));
}

TEST_CASE("when a node is lost, its files are copied again, so that the next loss does no harm") {
  Nodes nodes(4);
  const auto held = nodes.worker(1).hold(4, 0, {{"model", nodes.put("model", kBig)}}).value();
  auto collector = nodes.collector();
  nodes.lose(1);  // 2 has the copy and sends one to 3
  const auto survives = [&](int lost, int reader) {
    REQUIRE(wait_for([&] {
      wire::FileClient::Peer peer{"agent", nodes.agents.at(reader)->address(), nodes.secret, {}};
      peer.hello.role = "memory";
      wire::FileRequest request;
      request.call = "list_files";
      request.path = "run/4/";
      const auto answer = wire::FileClient(std::move(peer)).call(std::move(request));
      return answer && !(*answer->get_if<Dict>())["files"].as_dict().empty();
    }));
    nodes.lose(lost);
    CHECK(collector->available({{0, 4}, held.files}));
  };
  survives(2, 3);
  survives(3, 4);
  const auto folder = collect(*collector, held.files);
  REQUIRE(folder);
  CHECK(storage::read_file(*folder + "/model").value() == kBig);
  nodes.lose(4);
  CHECK(message_of(collector->available({{0, 4}, held.files})) == "no node that is left holds its file model");
  CHECK(message_of(collect(*collector, held.files)) == "no node that is left holds its file model");
}

TEST_CASE("a node without room refuses, one that lacks it for a copy is skipped") {
  const Nodes nodes(2);
  const std::string half(600, 'h');
  CHECK(nodes.worker(2, 1000).hold(4, 0, {{"b", nodes.put("b", half)}}).value().nodes == 2);
  // Both nodes have 600 of 1000 bytes.
  const auto refused = nodes.worker(1, 1000).hold(4, 0, {{"a", nodes.put("a", half)}});
  CHECK(message_of(refused).find("no room for") != std::string::npos);
  nodes.collector()->drop_below(5);  // its destructor frees everything in any case
  CHECK(wait_for([&] { return nodes.worker(1, 1000).hold(5, 0, {{"a", nodes.dir / "a"}}).ok(); }));
}

TEST_CASE("a checkpoint is collected from the nodes that have its files, and checked") {
  const Nodes nodes(3);
  const auto first = nodes.worker(1).hold(4, 2, {{"one", nodes.put("one", kBig)}}).value();
  const auto second = nodes.worker(3).hold(4, 2, {{"sub/two", nodes.put("two", "2")}}).value();
  auto files = first.files;
  files.push_back(second.files.front());
  auto collector = nodes.collector();
  CHECK(collector->reachable());
  const auto folder = collect(*collector, files, 2);
  REQUIRE(folder);
  CHECK(storage::read_file(*folder + "/one").value() == kBig);
  CHECK(storage::read_file(*folder + "/sub/two").value() == "2");
  CHECK(message_of(collect(*collector, files, 1)) == "no node that is left holds its file one");
  files.back().xxh3 = "0123456789abcdef";
  CHECK(message_of(collect(*collector, files, 2)).find("which no rank has stored") != std::string::npos);
  CHECK_FALSE(collector->forgotten({2, 4}));
  collector->forget({2, 4});
  CHECK(collector->forgotten({2, 4}));
  collector.reset();
  CHECK_FALSE(std::filesystem::exists(nodes.dir / ".trireme_collected"));
  CHECK(wait_for([&] { return nodes.worker(2).list(kCheckpoint).value().empty(); }));
}

TEST_CASE("a driver that cannot connect to the agents notices it") {
  const Nodes nodes(1);
  const auto address = nodes.agents.at(1)->address().text();
  control::MemoryCollector wrong("run", nodes.dir.path().native(), [&] {
    return engine::NodeMemory{"engine", wire::random_bytes(wire::kSecretSize), {address}};
  });
  CHECK_FALSE(wrong.reachable());
  control::MemoryCollector none("run", nodes.dir.path().native(), [] { return engine::NodeMemory(); });
  CHECK(none.reachable());
}

TEST_CASE("peers without the secret, and workers at the entrance of agents, are refused") {
  const Nodes nodes(1);
  const auto ask = [&](const wire::Address& address, const std::string& secret, const std::string& role) {
    wire::FileClient::Peer peer{"the memory", address, secret, {}};
    peer.hello.role = role;
    wire::FileRequest request;
    request.call = "list_files";
    request.path = "run/4/";
    return wire::FileClient(std::move(peer)).call(std::move(request));
  };
  const auto& agent = *nodes.agents.at(1);
  CHECK(ask(agent.address(), nodes.secret, "memory"));
  CHECK(ask(agent.worker_address(), agent.worker_secret(), "storage"));
  CHECK_FALSE(ask(agent.address(), agent.worker_secret(), "memory"));
  CHECK_FALSE(ask(agent.worker_address(), nodes.secret, "storage"));
  CHECK_FALSE(ask(agent.address(), nodes.secret, "storage"));
}

}  // namespace memory_server_test
