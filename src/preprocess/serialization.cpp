#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "preprocess/preprocessor_impl.h"
#include "trireme/preprocessors.h"

// Preprocessors as JSON, compatible with Python: {"preprocessor": name, "arguments": {...}, "fitted":
// null or {"stats_": {...}}}, and {"preprocessor": "Chain", "chain": [...]}.

namespace trireme::data::preprocessors {
namespace {

namespace inner = preprocess;

constexpr const char* kFile = "preprocessor.json";

base::Result<Dict> described(const Preprocessor& preprocessor) {
  const auto& data = *preprocessor.data();
  if (!data.impl) {
    List chain;
    for (const auto& each : data.chain) {
      TRIREME_ASSIGN(auto one, described(each));
      chain.emplace_back(std::move(one));
    }
    return Dict{{"preprocessor", "Chain"}, {"chain", std::move(chain)}};
  }
  const auto& origin = data.impl->origin();
  if (!origin.function_argument.empty()) {
    return base::error(
        "{} cannot be written as JSON: {} contains a function. Create this preprocessor in the program when you "
        "need it, and serialize() the others",
        origin.name, origin.function_argument);
  }
  const auto& stats = data.impl->stats();
  return Dict{{"preprocessor", origin.name},
              {"arguments", origin.arguments},
              {"fitted", stats ? Value(Dict{{"stats_", *stats}}) : Value()}};
}

base::Error not_ours() { return base::error("this JSON was not written by Preprocessor::serialize()"); }

base::Result<Preprocessor> made_from(const Value& described);

base::Result<Preprocessor> chain_from(const Dict& described) {
  const Value* chain = described.find("chain");
  if (!chain || !chain->get_if<List>() || chain->as_list().empty()) return not_ours();
  inner::Data data;
  for (const auto& each : chain->as_list()) {
    TRIREME_ASSIGN(auto one, made_from(each));
    data.chain.push_back(std::move(one));
  }
  return Preprocessor(std::make_shared<inner::Data>(std::move(data)));
}

base::Result<Preprocessor> made_from(const Value& value) {
  const auto* dict = value.get_if<Dict>();
  if (!dict) return not_ours();
  if (const Value* name = dict->find("preprocessor"); name && *name == Value("Chain")) return chain_from(*dict);
  TRIREME_ASSIGN(auto impl, inner::read_preprocessor(*dict));
  return Preprocessor(std::make_shared<inner::Data>(inner::Data{std::move(impl)}));
}

}  // namespace

std::string Preprocessor::serialize() const {
  const auto found = described(*this);
  if (!found) throw ValueError(found.error().message());
  return base::to_json(*found);
}

Preprocessor Preprocessor::deserialize(std::string_view serialized) {
  const auto parsed = base::parse_plain_json(serialized);
  if (!parsed) {
    throw ValueError(fmt::format("'{}' was not written by Preprocessor::serialize(): {}", serialized.substr(0, 60),
                                 parsed.error().message()));
  }
  auto made = made_from(*parsed);
  if (!made) throw ValueError(made.error().message());
  return *std::move(made);
}

void Preprocessor::save(const std::string& folder) const {
  const std::string text = serialize();
  std::filesystem::create_directories(folder);
  const auto path = std::filesystem::path(folder) / kFile;
  const auto part = std::filesystem::path(folder) / fmt::format(".{}.{}", kFile, ::getpid());
  std::ofstream file(part, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw std::runtime_error(fmt::format("could not write {}", part.string()));
  std::filesystem::rename(part, path);
}

Preprocessor Preprocessor::load(const std::string& folder) {
  const auto path = std::filesystem::path(folder) / kFile;
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw std::runtime_error(fmt::format("{} does not exist: Preprocessor::save(folder) writes it", path.string()));
  std::ostringstream text;
  text << file.rdbuf();
  return deserialize(text.str());
}

}  // namespace trireme::data::preprocessors
