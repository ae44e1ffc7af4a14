// fuzzers NAME [count] [seed]: mutates the seeds of the fuzzer, deterministically.
// With Clang and -DTRIREME_SANITIZE=address,fuzzer-no-link it is a program of libFuzzer: TRIREME_FUZZER=NAME fuzzers.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "fuzz/fuzzer.h"

namespace {

using Random = std::mt19937_64;

std::size_t below(Random& random, std::size_t limit) { return static_cast<std::size_t>(random() % limit); }

void mutate(std::string& text, Random& random, const std::vector<std::string>& seeds) {
  const std::size_t at = below(random, text.size() + 1);
  switch (below(random, 8)) {
    case 0:
      if (at < text.size()) text[at] = static_cast<char>(random());
      return;
    case 1:
      if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(random, 8)));
      return;
    case 2: text.insert(at, 1, static_cast<char>(random())); return;
    case 3: text.erase(at, 1 + below(random, 4)); return;
    case 4: text.resize(at); return;
    case 5: {  // edge values for lengths
      static constexpr unsigned char kEdges[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
      for (std::size_t i = at; i < std::min(at + 4, text.size()); ++i) {
        text[i] = static_cast<char>(kEdges[below(random, sizeof kEdges)]);
      }
      return;
    }
    case 6: text.insert(at, text.substr(below(random, text.size() + 1), 1 + below(random, 16))); return;
    default: {
      const std::string& other = seeds[below(random, seeds.size())];
      text.replace(at, below(random, 32), other.substr(below(random, other.size() + 1), below(random, 64)));
      return;
    }
  }
}

const Fuzzer& fuzzer_named(const char* name) {
  const auto found = fuzzers().find(name ? name : "");
  if (found != fuzzers().end()) return found->second;
  std::fprintf(stderr, "fuzzers: no fuzzer has the name \"%s\"; choose one of:", name ? name : "");
  for (const auto& each : fuzzers()) std::fprintf(stderr, " %s", each.first.c_str());
  std::fprintf(stderr, "\n");
  std::exit(2);
}

}  // namespace

#ifdef TRIREME_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Fuzzer& fuzzer = fuzzer_named(std::getenv("TRIREME_FUZZER"));
  fuzzer.fuzz(data, size);
  return 0;
}
#else
int main(int argc, char** argv) {
  const Fuzzer& fuzzer = fuzzer_named(argc > 1 ? argv[1] : nullptr);
  const long count = argc > 2 ? std::atol(argv[2]) : 200000;
  const long seed = argc > 3 ? std::atol(argv[3]) : 1;
  const auto seeds = fuzzer.seeds();
  const auto feed = [&](const std::string& text) {
    fuzzer.fuzz(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  };
  for (const auto& each : seeds) feed(each);
  Random random(static_cast<std::uint64_t>(seed));
  for (long i = 0; i < count; ++i) {
    std::string text = seeds[below(random, seeds.size())];
    for (std::size_t changes = 1 + below(random, 6); changes > 0; --changes) mutate(text, random, seeds);
    feed(text);
  }
  std::printf("%ld inputs from %zu seeds (seed %ld)\n", count, seeds.size(), seed);
  return 0;
}
#endif
