#include "formats/tf_wire.h"

namespace trireme::formats::tf_wire {

base::Error broken(std::string_view why) {
  return base::error("this is not a tf.train.Example ({}); read_binary_files reads other records", why);
}

}  // namespace trireme::formats::tf_wire
