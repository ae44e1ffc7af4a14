#include "formats/tf_wire.h"

namespace trireme::formats::tf_wire {

base::Error broken(std::string_view why) {
  return base::error("this is not a tf.train.Example ({}); read_binary_files reads other records", why);
}

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t at) -> unsigned { return static_cast<std::uint8_t>(text[at]); };
    const unsigned lead = byte(i);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const std::size_t more = lead >= 0xC2 && lead < 0xE0 ? 1 : lead >= 0xE0 && lead < 0xF0 ? 2 : lead < 0xF5 ? 3 : 0;
    if (lead < 0xC2 || more == 0 || text.size() - i <= more) return false;
    // Rejects overlong encodings, surrogates and code points above the last one.
    const unsigned second = byte(i + 1);
    if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) || (lead == 0xF0 && second < 0x90) ||
        (lead == 0xF4 && second > 0x8F)) {
      return false;
    }
    for (std::size_t k = 1; k <= more; ++k) {
      if ((byte(i + k) & 0xC0) != 0x80) return false;
    }
    i += more + 1;
  }
  return true;
}

}  // namespace trireme::formats::tf_wire
