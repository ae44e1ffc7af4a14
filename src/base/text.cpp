#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

namespace trireme::base {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

std::string did_you_mean(std::string_view written, const std::vector<std::string>& names) {
  std::size_t best = std::numeric_limits<std::size_t>::max();
  const std::string* nearest = nullptr;
  for (const auto& name : names) {
    std::size_t distance = edit_distance(written, name);
    if (distance < best) {
      best = distance;
      nearest = &name;
    }
  }
  // Up to a third of the characters may differ; beyond that, a suggestion would be a guess.
  if (!nearest || best * 3 > std::max(written.size(), nearest->size())) return "";
  return fmt::format("; did you mean '{}'?", *nearest);
}

std::string count_of(std::size_t count, std::string_view noun) {
  if (count == 1) return fmt::format("1 {}", noun);
  constexpr std::string_view kVowels = "aeiou";
  if (noun.size() > 1 && noun.ends_with('y') && kVowels.find(noun[noun.size() - 2]) == std::string_view::npos) {
    return fmt::format("{} {}ies", count, noun.substr(0, noun.size() - 1));
  }
  const bool hisses = noun.ends_with('s') || noun.ends_with('x') || noun.ends_with("ch") || noun.ends_with("sh");
  return fmt::format("{} {}{}", count, noun, hisses ? "es" : "s");
}

std::string amount(double value) { return fmt::format("{:.10g}", value); }

std::string rank_list(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t j = i;
    while (j + 1 < ranks.size() && ranks[j + 1] == ranks[j] + 1) ++j;
    parts.push_back(i == j ? fmt::format("{}", ranks[i]) : fmt::format("{}-{}", ranks[i], ranks[j]));
    i = j + 1;
  }
  return join(parts, ",");
}

std::optional<std::int64_t> parse_bytes(std::string_view text) {
  text = trim(text);
  double number = 0;
  auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc() || !(number >= 0)) return {};
  std::string unit;
  for (char c : trim({end, text.data() + text.size()})) unit += static_cast<char>(std::tolower(c));
  if (unit.ends_with('b')) unit.pop_back();
  const bool binary = unit.ends_with('i');
  if (binary) unit.pop_back();
  constexpr std::string_view kPrefixes = "kmgt";
  std::size_t power = 0;
  if (!unit.empty()) {
    power = kPrefixes.find(unit) + 1;
    if (unit.size() != 1 || power == 0) return {};
  } else if (binary) {
    return {};
  }
  const double bytes = number * std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power));
  if (bytes > 9e18) return {};
  return static_cast<std::int64_t>(bytes);
}

std::string shortened(std::string text, std::size_t longest) {
  if (text.size() <= longest) return text;
  std::size_t length = longest;
  while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xc0) == 0x80) --length;  // inside of a character
  const std::string end = fmt::format("\n... and {} bytes more", text.size() - length);
  text.resize(length);
  return text + end;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (true) {
    std::size_t at = text.find(separator);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

bool is_utf8(std::string_view text) {
  const auto* at = reinterpret_cast<const unsigned char*>(text.data());
  const auto* end = at + text.size();
  while (at < end) {
    const unsigned char first = *at++;
    if (first < 0x80) continue;
    const int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
    if (first < 0xc2 || first > 0xf4 || end - at < more) return false;
    // The second byte identifies overlong encodings, surrogates and values beyond Unicode.
    const unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    const unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (at[0] < low || at[0] > high) return false;
    for (int i = 1; i < more; ++i) {
      if ((at[i] & 0xc0) != 0x80) return false;
    }
    at += more;
  }
  return true;
}

}  // namespace trireme::base
