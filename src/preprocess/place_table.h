#pragma once

#include <xxhash.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::preprocess {

inline std::uint64_t hash_of(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }
inline std::uint64_t hash_of(std::int64_t number) {
  const auto mixed = static_cast<std::uint64_t>(number) * 0x9E3779B97F4A7C15;
  return mixed ^ mixed >> 32;
}

// Numbers by key, which is looked up as a Sought. Open addressing: lookups are the inner loop of the encoders.
template <typename Key, typename Sought>
class PlaceTable {
 public:
  // -1 if it is not there.
  std::int64_t find(Sought key) const {
    if (slots_.empty()) return -1;
    const Slot& slot = slots_[slot_of(key, hash_of(key))];
    return slot.entry == 0 ? -1 : places_[slot.entry - 1];
  }

  // Returns whether it is new.
  bool add(Sought key, std::int64_t place) {
    if (keys_.size() * 2 >= slots_.size()) grow();
    const std::uint64_t hash = hash_of(key);
    Slot& slot = slots_[slot_of(key, hash)];
    if (slot.entry != 0) return false;
    keys_.emplace_back(key);
    places_.push_back(place);
    slot = {hash, keys_.size()};
    return true;
  }

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::size_t entry = 0;  // index of the key, plus 1; 0: free
  };

  // The slot of the key, or the free one where it belongs.
  std::size_t slot_of(Sought key, std::uint64_t hash) const {
    std::size_t at = hash & (slots_.size() - 1);
    while (slots_[at].entry != 0 && (slots_[at].hash != hash || Sought(keys_[slots_[at].entry - 1]) != key))
      at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  void grow() {
    std::vector<Slot> before(slots_.empty() ? 16 : slots_.size() * 2);  // a power of 2
    before.swap(slots_);
    for (const Slot& slot : before) {
      if (slot.entry != 0) slots_[slot_of(keys_[slot.entry - 1], slot.hash)] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::vector<Key> keys_;
  std::vector<std::int64_t> places_;
};

}  // namespace trireme::preprocess
