#include "boosting/matrix_rows.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "data/arrow_c.h"

namespace trireme::boosting {
namespace {

bool bit(const void* bits, std::int64_t at) { return (static_cast<const std::uint8_t*>(bits)[at / 8] >> (at % 8)) & 1; }

template <typename T>
double element(const ArrowArray& column, std::int64_t at) {
  return static_cast<double>(static_cast<const T*>(column.buffers[1])[at]);
}

using Read = double (*)(const ArrowArray&, std::int64_t);

Read reader_of(const ArrowSchema& field) {
  switch (field.format[1] == 0 ? field.format[0] : '?') {
    case 'b': return [](const ArrowArray& column, std::int64_t at) { return bit(column.buffers[1], at) ? 1.0 : 0.0; };
    case 'c': return &element<std::int8_t>;
    case 'C': return &element<std::uint8_t>;
    case 's': return &element<std::int16_t>;
    case 'S': return &element<std::uint16_t>;
    case 'i': return &element<std::int32_t>;
    case 'I': return &element<std::uint32_t>;
    case 'l': return &element<std::int64_t>;
    case 'L': return &element<std::uint64_t>;
    case 'f': return &element<float>;
    case 'g': return &element<double>;
    default: throw std::runtime_error(std::string("column ") + field.name + " is not numeric (" + field.format + ")");
  }
}

// Exported rows, released at the end of the scope.
struct Exported {
  explicit Exported(const Batch& batch) { batch.export_to(&array, &schema); }
  ~Exported() {
    array.release(&array);
    schema.release(&schema);
  }
  Exported(const Exported&) = delete;
  Exported& operator=(const Exported&) = delete;

  std::int64_t index_of(const std::string& column) const {
    for (std::int64_t index = 0; index < schema.n_children; ++index) {
      if (column == schema.children[index]->name) return index;
    }
    throw std::runtime_error("a batch has no column " + column);
  }

  ArrowArray array{};
  ArrowSchema schema{};
};

std::string kind_of(const std::string& type) {
  for (const char* number : {"bool", "int", "uint", "float", "double"}) {
    if (type.starts_with(number)) return "number";
  }
  if (type == "string" || type == "utf8" || type == "large_string" || type == "large_utf8") return "string";
  return type;
}

}  // namespace

std::vector<float> matrix_of(const Batch& batch, const std::vector<std::string>& columns) {
  const Exported rows(batch);
  const std::size_t width = columns.size();
  std::vector<float> matrix(static_cast<std::size_t>(batch.rows()) * width);
  for (std::size_t each = 0; each < width; ++each) {
    const std::int64_t index = rows.index_of(columns[each]);
    const ArrowArray& column = *rows.array.children[index];
    const Read read = reader_of(*rows.schema.children[index]);
    const void* valid = column.null_count == 0 ? nullptr : column.buffers[0];
    for (std::int64_t row = 0; row < batch.rows(); ++row) {
      const std::int64_t at = rows.array.offset + column.offset + row;
      matrix[static_cast<std::size_t>(row) * width + each] = valid != nullptr && !bit(valid, at)
                                                                 ? std::numeric_limits<float>::quiet_NaN()
                                                                 : static_cast<float>(read(column, at));
    }
  }
  return matrix;
}

Dict described(const Dataset& dataset) {
  Dict columns;
  const std::string schema = dataset.schema();
  std::size_t begin = 0;
  while (begin < schema.size()) {
    const std::size_t end = std::min(schema.find('\n', begin), schema.size());
    const std::string line = schema.substr(begin, end - begin);
    const std::size_t colon = line.rfind(": ");
    columns[line.substr(0, colon)] = kind_of(line.substr(colon + 2));
    begin = end + 1;
  }
  return {{"rows", dataset.count()}, {"columns", std::move(columns)}};
}

}  // namespace trireme::boosting
