#include <arrow/array.h>
#include <arrow/builder.h>
#include <arrow/c/bridge.h>
#include <arrow/compute/cast.h>
#include <arrow/type_traits.h>

#include <charconv>
#include <cmath>

#include "kernels.h"
#include "status.h"
#include "trireme/arrow/data.h"
#include "written_files.h"

// write_json(): one object per line, in the format of Python's json.

namespace trireme::data {
namespace {

using dataset::check;
using dataset::Output;

void write_text(std::string& out, std::string_view text) {
  out += '"';
  for (const char sign : text) {
    constexpr std::string_view kSpecial = "\"\\\n\r\t\b\f";
    constexpr std::string_view kShort = "\"\\nrtbf";
    if (const auto found = kSpecial.find(sign); found != std::string_view::npos) {
      out += '\\';
      out += kShort[found];
    } else if (static_cast<unsigned char>(sign) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", sign);
      out += code;
    } else {
      out += sign;
    }
  }
  out += '"';
}

// The shortest text that parses to the same float. JSON has neither NaN nor infinity.
void write_real(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char digits[64];
  const double size = std::fabs(value);
  const bool plain = value == 0 || (size >= 1e-4 && size < 1e16);  // as Python formats them
  const auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
  const auto end = std::to_chars(digits, digits + sizeof digits, value, format).ptr;
  const std::string_view text(digits, static_cast<std::size_t>(end - digits));
  out += text;
  if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

void write_value(std::string& out, const Value& value);

template <typename Items, typename Write>
void write_items(std::string& out, char open, char close, const Items& items, const Write& write) {
  out += open;
  bool first = true;
  for (const auto& item : items) {
    if (!first) out += ", ";
    first = false;
    write(item);
  }
  out += close;
}

// A tensor as lists of lists.
void write_tensor(std::string& out, const Tensor& tensor, std::size_t dimension, std::size_t& at) {
  if (dimension == tensor.shape().size()) {
    const std::size_t index = at++;
    switch (tensor.dtype()) {
      case DType::kBool: out += tensor.values<bool>()[index] ? "true" : "false"; return;
      case DType::kU8: out += std::to_string(tensor.values<std::uint8_t>()[index]); return;
      case DType::kI8: out += std::to_string(tensor.values<std::int8_t>()[index]); return;
      case DType::kU16: out += std::to_string(tensor.values<std::uint16_t>()[index]); return;
      case DType::kI16: out += std::to_string(tensor.values<std::int16_t>()[index]); return;
      case DType::kU32: out += std::to_string(tensor.values<std::uint32_t>()[index]); return;
      case DType::kI32: out += std::to_string(tensor.values<std::int32_t>()[index]); return;
      case DType::kU64: out += std::to_string(tensor.values<std::uint64_t>()[index]); return;
      case DType::kI64: out += std::to_string(tensor.values<std::int64_t>()[index]); return;
      case DType::kF32: write_real(out, tensor.values<float>()[index]); return;
      case DType::kF64: write_real(out, tensor.values<double>()[index]); return;
      default: throw ValueError("JSON cannot hold tensors of " + std::string(name_of(tensor.dtype())));
    }
  }
  out += '[';
  for (std::int64_t i = 0; i < tensor.shape()[dimension]; ++i) {
    if (i > 0) out += ", ";
    write_tensor(out, tensor, dimension + 1, at);
  }
  out += ']';
}

void write_dict(std::string& out, const Dict& dict) {
  write_items(out, '{', '}', dict, [&](const auto& item) {
    write_text(out, item.first);
    out += ": ";
    write_value(out, item.second);
  });
}

void write_value(std::string& out, const Value& value) {
  std::size_t at = 0;
  if (const auto* flag = value.get_if<bool>()) out += *flag ? "true" : "false";
  else if (const auto* whole = value.get_if<std::int64_t>()) out += std::to_string(*whole);
  else if (const auto* real = value.get_if<double>()) write_real(out, *real);
  else if (const auto* text = value.get_if<std::string>()) write_text(out, *text);
  else if (const auto* list = value.get_if<List>())
    write_items(out, '[', ']', *list, [&](const Value& each) { write_value(out, each); });
  else if (const auto* dict = value.get_if<Dict>()) write_dict(out, *dict);
  else if (const auto* tensor = value.get_if<Tensor>()) write_tensor(out, *tensor, 0, at);
  else if (value.get_if<Bytes>())
    throw ValueError("JSON cannot hold bytes; decode or drop the column, or use write_parquet");
  else out += "null";
}

// "1970-01-01 00:00:00.000000", as Python's isoformat() formats it.
std::string in_iso_format(std::string_view text) {
  std::string moment(text);
  if (const auto space = moment.find(' '); space != std::string::npos) moment[space] = 'T';
  if (moment.ends_with('Z')) moment.replace(moment.size() - 1, 1, "+00:00");
  const auto dot = moment.find('.');
  if (dot == std::string::npos) return moment;
  auto end = moment.find_first_not_of("0123456789", dot + 1);
  if (end == std::string::npos) end = moment.size();
  const std::string fraction = moment.substr(dot + 1, end - dot - 1);
  const bool none = fraction.find_first_not_of('0') == std::string::npos;
  // In microseconds, however many digits the unit has.
  const std::string shown =
      none ? "" : "." + (fraction + "000000").substr(0, std::max<std::size_t>(fraction.size(), 6));
  return moment.substr(0, dot) + shown + moment.substr(end);
}

std::shared_ptr<::arrow::Array> as_text(const std::shared_ptr<::arrow::Array>& column) {
  const auto cast = check(::arrow::compute::Cast(*column, ::arrow::utf8()));
  const auto& moments = static_cast<const ::arrow::StringArray&>(*cast);
  ::arrow::StringBuilder builder;
  for (std::int64_t row = 0; row < moments.length(); ++row) {
    check(moments.IsNull(row) ? builder.AppendNull() : builder.Append(in_iso_format(moments.GetView(row))));
  }
  return check(builder.Finish());
}

class JsonLines final : public dataset::FileWriter {
 public:
  explicit JsonLines(Output file) : file_(std::move(file)) {}

  void add(const ::arrow::RecordBatch& batch) override {
    std::string lines;
    for (const auto& row : rows_of(batch)) {
      write_dict(lines, row);
      lines += '\n';
    }
    check(file_->Write(lines));
  }

 private:
  static std::vector<Dict> rows_of(const ::arrow::RecordBatch& batch) {
    auto fields = batch.schema()->fields();
    auto columns = batch.columns();
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const auto id = fields[i]->type()->id();
      if (!::arrow::is_temporal(id) || ::arrow::is_interval(id) || id == ::arrow::Type::DURATION) continue;
      columns[i] = as_text(columns[i]);
      fields[i] = fields[i]->WithType(::arrow::utf8());
    }
    const auto plain = ::arrow::RecordBatch::Make(::arrow::schema(fields), batch.num_rows(), columns);
    ArrowArrayStream stream;
    check(::arrow::ExportRecordBatchReader(check(::arrow::RecordBatchReader::Make({plain}, plain->schema())), &stream));
    return from_stream(&stream).take_all();
  }

  Output file_;
};

}  // namespace

void write_json(const Dataset& dataset, const std::string& folder, const WriteFilesOptions& options) {
  dataset::load_kernels();
  dataset::write_files(dataset, folder, ".json", options,
                       [](const auto&, const Output& file) { return std::make_unique<JsonLines>(file); });
}

}  // namespace trireme::data
