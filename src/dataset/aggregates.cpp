#include "aggregates.h"

#include <arrow/acero/exec_plan.h>
#include <arrow/acero/options.h>
#include <arrow/array/concatenate.h>
#include <arrow/array/util.h>
#include <arrow/c/bridge.h>
#include <arrow/compute/api_aggregate.h>
#include <arrow/compute/api_vector.h>
#include <arrow/compute/cast.h>
#include <arrow/scalar.h>
#include <arrow/table.h>
#include <arrow/util/decimal.h>

#include <limits>

#include "file_source.h"
#include "kernels.h"
#include "status.h"
#include "unified.h"

namespace trireme::dataset {
namespace {

namespace acero = ::arrow::acero;
namespace compute = ::arrow::compute;
using plan::Aggregation;
using ReaderPointer = std::shared_ptr<::arrow::RecordBatchReader>;
using ScalarPointer = std::shared_ptr<::arrow::Scalar>;
using TypePointer = std::shared_ptr<::arrow::DataType>;

bool is_wide(const ::arrow::DataType& type) {
  return type.id() == ::arrow::Type::INT64 || type.id() == ::arrow::Type::UINT64;
}

// The type in which Arrow aggregates without overflow: it adds integers modulo 2^64.
TypePointer working_type(const TypePointer& type, Aggregation function) {
  const bool adds = function == Aggregation::kSum || function == Aggregation::kMean;
  if (type->id() == ::arrow::Type::BOOL && adds) return ::arrow::int64();
  if (::arrow::is_integer(type->id()) && adds) return ::arrow::decimal128(38, 0);
  if (function == Aggregation::kStd && is_wide(*type)) return ::arrow::float64();  // distances from a value
  if (type->id() == ::arrow::Type::HALF_FLOAT) return ::arrow::float32();
  if (type->id() == ::arrow::Type::DECIMAL256) return ::arrow::float64();
  if (::arrow::is_decimal(type->id()) && adds)
    return ::arrow::decimal128(38, static_cast<const ::arrow::DecimalType&>(*type).scale());
  if (type->id() == ::arrow::Type::DURATION) return ::arrow::int64();
  if (type->id() == ::arrow::Type::NA) return ::arrow::float64();  // of nulls
  return type;
}

// The column as "x", in the working type.
ReaderPointer converted(ReaderPointer reader, const TypePointer& type, Aggregation function) {
  auto schema = ::arrow::schema({::arrow::field("x", type)});
  auto make = [reader, schema, type, function, origin = ScalarPointer()]() mutable -> ::arrow::Result<BatchPointer> {
    ARROW_ASSIGN_OR_RAISE(const auto batch, reader->Next());
    if (!batch) return batch;
    auto column = batch->column(0);
    if (function == Aggregation::kStd && is_wide(*column->type()) && column->null_count() < column->length()) {
      if (!origin) {
        ARROW_ASSIGN_OR_RAISE(const auto ends, compute::MinMax(column));
        origin = ends.scalar_as<::arrow::StructScalar>().value[0];
      }
      ARROW_ASSIGN_OR_RAISE(const auto away, distances(column, origin));
      column = away.make_array();
    }
    if (!column->type()->Equals(type)) {
      ARROW_ASSIGN_OR_RAISE(column, compute::Cast(*column, type));
    }
    return ::arrow::RecordBatch::Make(schema, batch->num_rows(), {std::move(column)});
  };
  return std::make_shared<MadeBatches>(schema, std::move(make));
}

// "rows", "nulls" and "value", streamed through Acero.
std::shared_ptr<::arrow::Table> streamed(ReaderPointer reader, const char* function,
                                         std::shared_ptr<compute::FunctionOptions> options) {
  const auto nulls = std::make_shared<compute::CountOptions>(compute::CountOptions::ONLY_NULL);
  std::vector<compute::Aggregate> wanted;
  wanted.emplace_back("count", ::arrow::FieldRef("x"), "rows");
  wanted.emplace_back("count", nulls, ::arrow::FieldRef("x"), "nulls");
  wanted.emplace_back(function, std::move(options), ::arrow::FieldRef("x"), "value");
  auto plan = acero::Declaration::Sequence(
      {{"record_batch_reader_source", acero::RecordBatchReaderSourceNodeOptions(std::move(reader))},
       {"aggregate", acero::AggregateNodeOptions(std::move(wanted))}});
  return check(acero::DeclarationToTable(std::move(plan), /*use_threads=*/false));
}

std::int64_t count_in(const ::arrow::Table& table, const char* column) {
  const auto scalar = check(table.GetColumnByName(column)->GetScalar(0));
  return static_cast<const ::arrow::Int64Scalar&>(*scalar).value;
}

ScalarPointer whole_sum(const ::arrow::Decimal128& sum) {
  const auto narrow = sum.ToInteger<std::int64_t>();
  if (narrow.ok()) return ::arrow::MakeScalar(*narrow);
  throw std::runtime_error(sum.ToIntegerString() +
                           " does not fit into a 64-bit integer; cast the column to float64 or decimal first");
}

// The result in a type that rows can hold.
ScalarPointer result_of(const ::arrow::Table& table, const plan::Aggregating& asked) {
  const auto function = asked.function;
  auto value = check(table.GetColumnByName("value")->GetScalar(0));
  if (!asked.ignore_nulls && count_in(table, "nulls") > 0) return ::arrow::MakeNullScalar(::arrow::null());
  const std::int64_t rows = count_in(table, "rows");
  if (function == Aggregation::kStd && 0 < rows && rows <= asked.ddof) {
    return ::arrow::MakeScalar(std::numeric_limits<double>::quiet_NaN());
  }
  if (function == Aggregation::kMin || function == Aggregation::kMax) {
    const auto& both = static_cast<const ::arrow::StructScalar&>(*value);
    return both.value[function == Aggregation::kMin ? 0 : 1];
  }
  if (!value->is_valid || value->type->id() != ::arrow::Type::DECIMAL128) return value;
  const auto& sum = static_cast<const ::arrow::Decimal128Scalar&>(*value).value;
  if (function == Aggregation::kSum) return whole_sum(sum);
  const std::int32_t scale = static_cast<const ::arrow::Decimal128Type&>(*value->type).scale();
  return ::arrow::MakeScalar(sum.ToDouble(scale) / static_cast<double>(rows));
}

// The distinct values of the batches so far are merged when they take this many rows.
constexpr std::int64_t kMergedRows = 1 << 20;

std::shared_ptr<::arrow::Array> unique_values(::arrow::RecordBatchReader& reader) {
  ::arrow::ArrayVector seen{check(::arrow::MakeEmptyArray(reader.schema()->field(0)->type()))};
  std::int64_t rows = 0;
  const auto merge = [&] { seen = {check(compute::Unique(check(::arrow::Concatenate(seen))))}; };
  while (const auto batch = check(reader.Next())) {
    seen.push_back(check(compute::Unique(check(plain_floats(batch->column(0))))));
    rows += seen.back()->length();
    if (rows < kMergedRows) continue;
    merge();
    rows = 0;
  }
  merge();
  return seen.front();
}

}  // namespace

void aggregate(ArrowArrayStream* column, const plan::Aggregating& asked, ArrowArray* out, ArrowSchema* schema) {
  load_kernels();
  const auto function = asked.function;
  auto reader = check(::arrow::ImportRecordBatchReader(column));
  const auto type = reader->schema()->field(0)->type();
  if (function == Aggregation::kUnique) {
    const auto values = unique_values(*reader);
    const auto batch =
        ::arrow::RecordBatch::Make(::arrow::schema({::arrow::field("value", type)}), values->length(), {values});
    check(::arrow::ExportRecordBatch(*batch, out, schema));
    return;
  }
  const auto working = working_type(type, function);
  const bool extreme = function == Aggregation::kMin || function == Aggregation::kMax;
  // The mean of decimals would be a decimal: integers are divided as floats afterwards.
  const bool adds = function == Aggregation::kSum || working->id() == ::arrow::Type::DECIMAL128;
  const char* name = extreme ? "min_max" : function == Aggregation::kStd ? "stddev" : adds ? "sum" : "mean";
  const auto options = function == Aggregation::kStd ? std::make_shared<compute::VarianceOptions>(asked.ddof) : nullptr;
  const auto table = streamed(converted(std::move(reader), working, function), name, options);
  const auto value = result_of(*table, asked);
  const auto batch = ::arrow::RecordBatch::Make(::arrow::schema({::arrow::field("value", value->type)}), 1,
                                                {check(::arrow::MakeArrayFromScalar(*value, 1))});
  check(::arrow::ExportRecordBatch(*batch, out, schema));
}

}  // namespace trireme::dataset
