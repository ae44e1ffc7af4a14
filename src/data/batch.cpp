#include "data/batch.h"

#include <fmt/format.h>

#include <limits>

#include "base/text.h"
#include "data/array_buffers.h"
#include "data/arrays.h"
#include "data/bits.h"
#include "data/column_gather.h"
#include "data/packed_rows.h"
#include "data/type_format.h"
#include "data/unaligned.h"

namespace trireme::data {
namespace {

// Dictionaries are resolved in batches.
std::string text_in_batch(const Type& type) {
  Type values = type;
  values.dictionary = false;
  return values.text();
}

base::Error has_nulls(const Field& field, std::int64_t nulls) {
  return base::error("column '{}' has {}; fill or drop them first", field.name, base::count_of(nulls, "null"));
}

// The input of a gather: the chunks, and the runs that have rows. Row numbers are relative to the columns, not to the
// record batches.
struct Plan {
  std::vector<const Chunk*> chunks;
  std::vector<Run> runs;
  std::int64_t rows = 0;
};

base::Result<Plan> plan_of(std::span<const std::shared_ptr<const Chunk>> chunks, std::span<const Run> runs) {
  constexpr auto kUnused = std::numeric_limits<std::uint32_t>::max();
  std::vector<std::uint32_t> places(chunks.size(), kUnused);
  Plan plan;
  plan.runs.reserve(runs.size());
  for (const Run& run : runs) {
    TRIREME_CHECK(run.chunk < chunks.size(), "chunk {} of {}", run.chunk, chunks.size());
    const Chunk& chunk = *chunks[run.chunk];
    TRIREME_CHECK(run.row >= 0 && run.count >= 0 && run.row <= chunk.rows() - run.count,
                  "{} rows from row {} on, of {}", run.count, run.row, chunk.rows());
    if (run.count == 0) continue;
    if (__builtin_add_overflow(plan.rows, run.count, &plan.rows)) return base::error("a batch has too many rows");
    auto& place = places[run.chunk];
    if (place == kUnused) {
      place = static_cast<std::uint32_t>(plan.chunks.size());
      plan.chunks.push_back(&chunk);
      TRIREME_TRY(chunk.schema()->check_same(*chunks[0]->schema()));
    }
    plan.runs.push_back({place, run.row + chunk.row_offset(), run.count});
  }
  return plan;
}

// For chunks stored row by row, all in the same layout.
std::vector<Array> unpack_runs(const Plan& plan) {
  std::vector<const std::byte*> rows;
  rows.reserve(static_cast<std::size_t>(plan.rows));
  for (const Run& run : plan.runs) {
    const PackedRows* packed = plan.chunks[run.chunk]->packed();
    TRIREME_CHECK(packed, "chunks with columns and chunks with rows in one batch");
    for (std::int64_t i = 0; i < run.count; ++i) rows.push_back(packed->row(run.row + i));
  }
  const Chunk& first = *plan.chunks.front();
  return unpack(*first.schema(), first.packed()->layout(), rows);
}

}  // namespace

struct Batch::Data {
  std::shared_ptr<const Schema> schema;
  std::int64_t rows = 0;
  std::vector<Array> columns;
  std::int64_t bytes = 0;

  const Field& field(std::size_t column) const {
    TRIREME_CHECK(column < columns.size(), "column {} of {}", column, columns.size());
    return schema->fields()[column];
  }
};

base::Result<Batch> Batch::gather(std::span<const std::shared_ptr<const Chunk>> chunks, std::span<const Run> runs) {
  TRIREME_CHECK(!chunks.empty(), "a batch of no chunks");
  auto data = std::make_shared<Data>();
  data->schema = chunks[0]->schema();
  TRIREME_ASSIGN(const Plan plan, plan_of(chunks, runs));
  data->rows = plan.rows;
  if (!plan.chunks.empty() && plan.chunks.front()->packed()) {
    data->columns = unpack_runs(plan);
    for (const Array& column : data->columns) data->bytes += column.bytes();
    return Batch(std::move(data));
  }
  const auto& fields = data->schema->fields();
  std::vector<const ArrowArray*> sources(plan.chunks.size());
  for (std::size_t i = 0; i < fields.size(); ++i) {
    for (std::size_t j = 0; j < sources.size(); ++j) sources[j] = &plan.chunks[j]->column(i);
    TRIREME_ASSIGN(Array column, gather_column(fields[i].type, sources, plan.runs, plan.rows), "column '{}'",
                   fields[i].name);
    data->bytes += column.bytes();
    data->columns.push_back(std::move(column));
  }
  return Batch(std::move(data));
}

Batch Batch::empty(std::shared_ptr<const Schema> schema) {
  auto data = std::make_shared<Data>();
  for (const Field& field : schema->fields()) {
    data->columns.push_back(std::move(*gather_column(field.type, {}, {}, 0)));
    data->bytes += data->columns.back().bytes();
  }
  data->schema = std::move(schema);
  return Batch(std::move(data));
}

const std::shared_ptr<const Schema>& Batch::schema() const { return data_->schema; }
std::int64_t Batch::rows() const { return data_->rows; }
std::int64_t Batch::bytes() const { return data_->bytes; }

base::Result<Tensor> Batch::tensor(std::size_t column) const {
  const Field& field = data_->field(column);
  const Type* type = &field.type;
  const Array* array = &data_->columns[column];
  std::int64_t nulls = array->null_count;
  for (; type->kind == Kind::kFixedList; type = &type->children[0]) {
    array = &array->children[0];
    if (nulls == 0) nulls = array->null_count;
  }
  const auto dtype = element_type(*type);
  if (!dtype) {
    return base::error(
        "column '{}' is {}, which cannot be converted to a tensor; cast it to numbers, or read it as Arrow", field.name,
        text_in_batch(field.type));
  }
  if (field.type.kind == Kind::kFixedList && field.tensor_shape.empty()) {
    return base::error("column '{}' has tensors with permuted dimensions; store them in the order of their shape",
                       field.name);
  }
  if (nulls > 0) return has_nulls(field, nulls);
  std::vector<std::int64_t> shape = {data_->rows};
  shape.insert(shape.end(), field.tensor_shape.begin(), field.tensor_shape.end());
  if (dtype != DType::kBool) return Tensor::view(*dtype, std::move(shape), array->values.data(), data_);
  Tensor copied(*dtype, std::move(shape));
  auto* to = static_cast<std::byte*>(copied.data());
  for (std::int64_t i = 0; i < array->length; ++i) to[i] = static_cast<std::byte>(bit_at(array->values.data(), i));
  return copied;
}

base::Result<std::vector<std::string_view>> Batch::strings(std::size_t column) const {
  const Field& field = data_->field(column);
  const Array& array = data_->columns[column];
  if (field.type.kind != Kind::kText) {
    return base::error("column '{}' is {}, not text; cast it to string", field.name, text_in_batch(field.type));
  }
  if (array.null_count > 0) return has_nulls(field, array.null_count);
  std::vector<std::string_view> texts;
  texts.reserve(static_cast<std::size_t>(data_->rows));
  const auto* bytes = reinterpret_cast<const char*>(array.text.data());
  with_offset_type(field.type, [&](auto offset) {
    for (std::int64_t i = 0; i < data_->rows; ++i) {
      const auto begin = load<decltype(offset)>(array.values.data(), i);
      texts.emplace_back(bytes + begin,
                         static_cast<std::size_t>(load<decltype(offset)>(array.values.data(), i + 1) - begin));
    }
  });
  return texts;
}

Record Batch::exported() const {
  std::vector<OwnedArray> columns;
  for (std::size_t i = 0; i < data_->columns.size(); ++i) {
    columns.push_back(export_array(data_->schema->fields()[i].type, data_->columns[i], data_));
  }
  return {make_array(data_->rows, 0, {nullptr}, {data_}, std::move(columns)), data_->schema->exported()};
}

}  // namespace trireme::data
