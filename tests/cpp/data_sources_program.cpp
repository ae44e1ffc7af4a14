#include <trireme/arrow/data.h>
#include <trireme/trireme.h>

#include <functional>
#include <iostream>
#include <map>
#include <string>

// Datasets from files that Arrow does not read. tests/python/test_cpp_data_sources.py selects the files and compares
// the output with the rows that Python reads from them.
//
//   data_sources_program read_images out=FOLDER path=... [size=8,6] [mode=RGB] [max_pixels=9] [include_paths=1] ...

namespace {

using trireme::Dataset;
namespace data = trireme::data;

class Arguments {
 public:
  Arguments(int argc, char** argv) {
    for (int i = 2; i < argc; ++i) {
      const std::string argument = argv[i];
      const auto equal = argument.find('=');
      values_.emplace(argument.substr(0, equal), argument.substr(equal + 1));
    }
  }

  bool has(const std::string& name) const { return values_.contains(name); }
  std::string text(const std::string& name) const { return has(name) ? values_.find(name)->second : ""; }
  std::vector<std::string> all(const std::string& name) const {
    std::vector<std::string> found;
    for (auto [at, end] = values_.equal_range(name); at != end; ++at) found.push_back(at->second);
    return found;
  }

 private:
  std::multimap<std::string, std::string> values_;
};

Dataset images(const Arguments& arguments) {
  data::ReadImagesOptions options;
  options.mode = arguments.text("mode");
  options.include_paths = arguments.has("include_paths");
  options.skip_bad_files = arguments.has("skip_bad_files");
  if (arguments.has("max_pixels")) options.max_pixels = std::stoll(arguments.text("max_pixels"));
  if (arguments.has("size")) {
    const std::string size = arguments.text("size");
    options.size = {std::stoll(size), std::stoll(size.substr(size.find(',') + 1))};
  }
  return data::read_images(arguments.all("path"), options);
}

Dataset numpy(const Arguments& arguments) {
  return data::read_numpy(arguments.all("path"), {.include_paths = arguments.has("include_paths"),
                                                  .skip_bad_files = arguments.has("skip_bad_files")});
}

Dataset tfrecords(const Arguments& arguments) {
  data::ReadTfrecordsOptions options;
  for (const auto& column : arguments.all("column")) {
    const auto colon = column.find(':');
    options.schema[column.substr(0, colon)] = column.substr(colon + 1);
  }
  options.include_paths = arguments.has("include_paths");
  options.skip_bad_files = arguments.has("skip_bad_files");
  return data::read_tfrecords(arguments.all("path"), options);
}

Dataset webdataset(const Arguments& arguments) {
  return data::read_webdataset(arguments.all("path"), {.decode = !arguments.has("raw"),
                                                       .suffixes = arguments.all("suffix"),
                                                       .include_paths = arguments.has("include_paths"),
                                                       .skip_bad_files = arguments.has("skip_bad_files")});
}

Dataset sql(const Arguments& arguments) {
  trireme::List parameters;
  for (const auto& parameter : arguments.all("parameter")) parameters.emplace_back(parameter);
  return data::read_sql(arguments.text("query"), data::sqlite(arguments.text("file"), parameters));
}

// A custom connection: any function that returns an Arrow stream.
Dataset own_connection(const Arguments& arguments) {
  return data::read_sql(arguments.text("query"), [](const std::string& query, ArrowArrayStream* rows) {
    if (query.empty()) throw std::runtime_error("there is no query");
    data::range(static_cast<std::int64_t>(query.size())).export_to(rows);
  });
}

// Prints the rows: shapes of tensors, and text.
void show(const Dataset& rows) {
  for (auto& row : rows.iter_rows()) {
    for (const auto& [name, value] : row) {
      std::cout << name << "=";
      if (const auto* tensor = value.get_if<trireme::Tensor>()) {
        std::cout << trireme::name_of(tensor->dtype());
        for (const auto size : tensor->shape()) std::cout << " " << size;
      } else if (const auto* text = value.get_if<std::string>()) {
        std::cout << *text;
      }
      std::cout << ";";
    }
    std::cout << "\n";
  }
}

const std::map<std::string, std::function<Dataset(const Arguments&)>> kReaders = {
    {"read_images", images},         {"read_numpy", numpy}, {"read_tfrecords", tfrecords},
    {"read_webdataset", webdataset}, {"read_sql", sql},     {"own_connection", own_connection},
};

}  // namespace

int main(int argc, char** argv) {
  trireme::init(argc, argv);
  if (argc < 3 || !kReaders.contains(argv[1])) return 2;
  try {
    const Arguments arguments(argc, argv);
    Dataset rows = kReaders.at(argv[1])(arguments);
    if (arguments.has("show")) {
      show(rows);
      return 0;
    }
    if (arguments.has("seed")) rows = rows.random_shuffle({.seed = std::stoll(arguments.text("seed"))});
    std::cout << rows.count() << " " << rows.num_fragments();
    for (const auto& column : rows.columns()) std::cout << " " << column;
    std::cout << "\n";
    if (arguments.has("out")) data::write_parquet(rows, arguments.text("out"));
  } catch (const std::exception& error) {
    std::cout << error.what() << "\n";
    return 1;
  }
  return 0;
}
