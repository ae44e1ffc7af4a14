#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"
#include "trireme/export.h"

namespace trireme::formats {

// Iterates over the members of a tar file: ustar, with the long names of pax and GNU.
class TRIREME_API TarReader {
 public:
  // Fills the memory; fewer bytes than requested are the last ones.
  using Read = std::function<base::Result<std::size_t>(char* out, std::size_t size)>;
  explicit TarReader(Read read) : read_(std::move(read)) {}

  struct Member {
    std::string name;
    std::uint64_t size = 0;
    bool file = true;  // false: a folder, a link, ...
  };
  // Nothing at the end. Skips the unread rest of the previous member.
  base::Result<std::optional<Member>> next();
  // The content of the current member. Call one of them once. The memory has Member::size bytes.
  base::Result<std::string> content();
  base::Result<void> content(char* out);

 private:
  struct Header;

  base::Result<bool> read_header(Header& header);
  base::Result<void> skip(std::uint64_t bytes);
  base::Result<std::string> take(std::uint64_t bytes);

  Read read_;
  std::uint64_t left_ = 0;  // unread bytes of the content
  std::uint64_t padding_ = 0;
  bool empty_ = true;  // nothing was read
};

}  // namespace trireme::formats
