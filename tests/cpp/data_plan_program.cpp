#include <arrow/c/bridge.h>
#include <arrow/io/file.h>
#include <arrow/ipc/api.h>
#include <arrow/record_batch.h>
#include <trireme/arrow/data.h>
#include <trireme/trireme.h>

#include <cmath>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

// Evaluates plans of tests/differential: a line of JSON for each plan on stdin, a line with its outcome on stdout.
// Tables cross as files with a stream of record batches. tests/differential/run_python.py does the same in Python.

namespace {

using nlohmann::json;
using trireme::Batch;
using trireme::Dataset;
using trireme::Dict;
using trireme::List;
using trireme::Value;
namespace data = trireme::data;

template <typename T>
T checked(arrow::Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().ToString());
  return std::move(result).ValueUnsafe();
}

void checked(const arrow::Status& status) {
  if (!status.ok()) throw std::runtime_error(status.ToString());
}

Dataset source(const json& source) {
  const std::string path = source.at("path");
  if (source.at("from") == "parquet") return data::read_parquet(path);
  const auto file = checked(arrow::io::ReadableFile::Open(path));
  const std::shared_ptr<arrow::RecordBatchReader> reader = checked(arrow::ipc::RecordBatchStreamReader::Open(file));
  ArrowArrayStream stream;
  checked(arrow::ExportRecordBatchReader(reader, &stream));
  return data::from_stream(&stream);
}

bool is_odd(const Value& value) {
  if (const auto* number = value.get_if<std::int64_t>()) return *number % 2 != 0;
  const double rest = std::fmod(value.as_double(), 2);
  return rest == 1 || rest == -1;
}

Value add_one(const Value& value) {
  if (value.is_null()) return value;
  if (const auto* number = value.get_if<std::int64_t>()) return *number + 1;
  return value.as_double() + 1;
}

Dict mapped(const Dict& row, const std::string& function, const std::string& column) {
  Dict made = row;
  const Value& value = row[column];
  if (function == "add_one") made[column] = add_one(value);
  if (function == "odd_to_null" && !value.is_null() && is_odd(value)) made[column] = nullptr;
  if (function == "is_missing") made["missing"] = value.is_null();
  return made;
}

std::vector<Dict> flat_mapped(const Dict& row, const std::string& function, const std::string& column) {
  if (function == "twice") return {row, row};
  return row[column].is_null() ? std::vector<Dict>{} : std::vector<Dict>{row};
}

// The columns of a batch, with one of them doubled if `function` requests it.
Dict batch_mapped(const Batch& batch, const std::string& function, const std::string& column) {
  Dict made;
  const auto rows = batch.to_rows();
  for (const auto& name : batch.columns()) {
    List values;
    for (const auto& row : rows) values.push_back(row[name]);
    if (name == column && function == "double") {
      for (auto& value : values) {
        if (const auto* number = value.get_if<std::int64_t>()) value = *number * 2;
        else value = value.as_double() * 2;
      }
    }
    made[name] = std::move(values);
  }
  return made;
}

class Steps {
 public:
  explicit Steps(std::string folder) : folder_(std::move(folder)) {}

  Dataset dataset(const json& node) {
    Dataset made = source(node.at("source"));
    for (const auto& step : node.at("steps")) made = apply(made, step);
    return made;
  }

 private:
  Dataset apply(const Dataset& from, const json& step) {
    const std::string op = step.at("op");
    for (auto table : {&Steps::rows, &Steps::columns, &Steps::parts, &Steps::relations}) {
      if (auto made = (this->*table)(from, op, step)) return *made;
    }
    throw std::runtime_error("the program has no operation " + op);
  }

  std::optional<Dataset> rows(const Dataset& from, const std::string& op, const json& step) {
    if (op == "filter") return from.filter(step.at("expression").get<std::string>());
    const std::string function = step.value("function", "");
    const std::string column = step.value("column", "");
    if (op == "filter_rows") {
      return from.filter(
          [=](const Dict& row) { return function != "none" && row[column].is_null() == (function == "is_missing"); });
    }
    if (op == "map") return from.map([=](const Dict& row) { return mapped(row, function, column); });
    if (op == "flat_map") return from.flat_map([=](const Dict& row) { return flat_mapped(row, function, column); });
    if (op == "map_batches") {
      trireme::MapBatchesOptions options;
      if (!step.at("batch_size").is_null()) options.batch_size = step.at("batch_size");
      return from.map_batches([=](const Batch& batch) { return batch_mapped(batch, function, column); }, options);
    }
    if (op == "sample") return from.random_sample(step.at("fraction"), step.at("seed").get<std::int64_t>());
    return {};
  }

  std::optional<Dataset> columns(const Dataset& from, const std::string& op, const json& step) {
    if (op == "with_column") return from.with_column(step.at("name"), step.at("expression").get<std::string>());
    if (op == "select") return from.select_columns(step.at("columns"));
    if (op == "drop") return from.drop_columns(step.at("columns"));
    if (op == "rename") return from.rename_columns(step.at("names"));
    return {};
  }

  std::optional<Dataset> parts(const Dataset& from, const std::string& op, const json& step) {
    if (op == "limit") return from.limit(step.at("rows"));
    if (op == "split") return from.split(step.at("parts")).at(step.at("part"));
    if (op == "split_at") return from.split_at_indices(step.at("indices")).at(step.at("part"));
    if (op == "train_test") {
      const auto both = from.train_test_split(step.at("test"));
      return step.at("part") == 0 ? both.first : both.second;
    }
    if (op == "shuffle") {
      trireme::ShuffleOptions options{.seed = step.at("seed").get<std::int64_t>()};
      if (step.contains("window") && !step.at("window").is_null()) options.window_rows = step.at("window");
      return from.random_shuffle(options);
    }
    if (op == "block_order") return from.randomize_block_order(step.at("seed").get<std::int64_t>());
    if (op == "repartition") return from.repartition(step.at("blocks"));
    if (op == "materialize") return from.materialize();
    return {};
  }

  std::optional<Dataset> relations(const Dataset& from, const std::string& op, const json& step) {
    if (op == "sort") return data::sort_by(from, step.at("keys"), step.at("descending"));
    if (op == "groupby") {
      std::vector<data::Aggregate> aggregates;
      for (const auto& one : step.at("aggregates")) {
        if (one[1].is_null()) aggregates.push_back(data::count_rows());
        else aggregates.push_back({one[1], one[0]});
      }
      return data::group_by(from, step.at("keys"), aggregates);
    }
    if (op == "join") {
      data::JoinOptions options{.right_on = step.at("right_on"), .right_suffix = step.at("suffix")};
      return data::join(from, dataset(step.at("others")[0]), step.at("on"), step.at("how"), options);
    }
    if (op == "zip") return from.zip(dataset(step.at("others")[0]));
    if (op == "union") {
      Dataset made = from;
      for (const auto& other : step.at("others")) made = made.union_with(dataset(other));
      return made;
    }
    if (op == "store") return stored(from, step.at("format"));
    return {};
  }

  Dataset stored(const Dataset& from, const std::string& format) {
    const std::string folder = folder_ + "/cpp" + std::to_string(++written_);
    if (format == "csv") {
      data::write_csv(from, folder);
      return data::read_csv(folder);
    }
    if (format == "json") {
      data::write_json(from, folder);
      return data::read_json(folder);
    }
    data::write_parquet(from, folder);
    return data::read_parquet(folder);
  }

  std::string folder_;
  int written_ = 0;
};

// Floats as text: JSON has neither NaN nor infinity.
json encoded(const Value& value) {
  if (value.is_null()) return nullptr;
  if (const auto* flag = value.get_if<bool>()) return *flag;
  if (const auto* number = value.get_if<std::int64_t>()) return *number;
  if (const auto* number = value.get_if<double>()) {
    char text[40];
    std::snprintf(text, sizeof text, "%.17g", *number);
    return {{"$float", text}};
  }
  if (const auto* text = value.get_if<std::string>()) return *text;
  if (const auto* list = value.get_if<List>()) {
    json made = json::array();
    for (const auto& each : *list) made.push_back(encoded(each));
    return made;
  }
  return {{"$type", value.type_name()}};
}

class Writer {
 public:
  explicit Writer(const std::string& path) : file_(checked(arrow::io::FileOutputStream::Open(path))) {}

  void write(const std::shared_ptr<arrow::RecordBatch>& batch) {
    if (!stream_) open(batch->schema());
    checked(stream_->WriteRecordBatch(*batch));
  }
  void open(const std::shared_ptr<arrow::Schema>& schema) {
    stream_ = checked(arrow::ipc::MakeStreamWriter(file_, schema));
  }
  void close() {
    if (stream_) checked(stream_->Close());
    checked(file_->Close());
  }

 private:
  std::shared_ptr<arrow::io::FileOutputStream> file_;
  std::shared_ptr<arrow::ipc::RecordBatchWriter> stream_;
};

void write_rows(const Dataset& dataset, const std::string& path) {
  ArrowArrayStream stream;
  dataset.export_to(&stream);
  const auto reader = checked(arrow::ImportRecordBatchReader(&stream));
  Writer writer(path);
  writer.open(reader->schema());
  for (auto batch = checked(reader->Next()); batch; batch = checked(reader->Next())) writer.write(batch);
  writer.close();
}

// The rows as workers see them: step by step, rank by rank, epoch after epoch.
json write_batches(const Dataset& dataset, const json& result, const std::string& path) {
  Writer writer(path);
  json sizes = json::array();
  const auto shards = dataset.streaming_split(result.at("workers"));
  for (int epoch = 0; epoch < result.at("epochs").get<int>(); ++epoch) {
    std::vector<trireme::Batches> ranges;
    std::vector<trireme::Batches::Iterator> ranks;
    for (const auto& shard : shards) {
      ranges.push_back(shard.iter_batches({.global_batch_size = result.at("size").get<std::int64_t>()}));
      ranks.push_back(ranges.back().begin());
    }
    while (!(ranks.front() == std::default_sentinel)) {
      for (auto& rank : ranks) {
        ArrowArray array;
        ArrowSchema schema;
        rank->export_to(&array, &schema);
        const auto batch = checked(arrow::ImportRecordBatch(&array, &schema));
        writer.write(batch);
        sizes.push_back(batch->num_rows());
        ++rank;
      }
    }
  }
  writer.close();
  return {{"sizes", sizes}};
}

json outcome(const json& plan) {
  const std::string folder = plan.at("folder");
  const Dataset dataset = Steps(folder).dataset(plan.at("dataset"));
  const json& result = plan.at("result");
  const std::string kind = result.at("kind");
  if (kind == "batches") return write_batches(dataset, result, folder + "/result");
  if (kind == "rows") {
    write_rows(dataset, folder + "/result");
    return json::object();
  }
  if (kind == "count") return {{"value", dataset.count()}};
  const std::string column = result.at("column");
  const bool ignore_nulls = result.at("ignore_nulls");
  if (kind == "unique") return {{"value", encoded(Value(dataset.unique(column, ignore_nulls)))}};
  if (kind == "sum") return {{"value", encoded(dataset.sum(column, ignore_nulls))}};
  if (kind == "min") return {{"value", encoded(dataset.min(column, ignore_nulls))}};
  if (kind == "max") return {{"value", encoded(dataset.max(column, ignore_nulls))}};
  if (kind == "mean") return {{"value", encoded(dataset.mean(column, ignore_nulls))}};
  if (kind == "std") return {{"value", encoded(dataset.std(column, 1, ignore_nulls))}};
  throw std::runtime_error("the program has no result " + kind);
}

}  // namespace

int main(int argc, char** argv) {
  trireme::init(argc, argv);
  for (std::string line; std::getline(std::cin, line);) {
    json made;
    try {
      made = outcome(json::parse(line));
    } catch (const json::exception& error) {
      std::cerr << error.what() << " in " << line << "\n";
      return 1;  // the plan is not one that this program understands
    } catch (const std::exception& error) {
      made = {{"error", error.what()}};
    }
    std::cout << made.dump(-1, ' ', false, json::error_handler_t::replace) << std::endl;
  }
}
