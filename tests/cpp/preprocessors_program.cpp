#include <trireme/preprocessors.h>
#include <trireme/trireme.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <type_traits>

// Preprocessors in a C++ program: tests/python/test_cpp_preprocessors.py passes rows and a preprocessor.json, and
// compares the output with Python's.

namespace {

namespace data = trireme::data;
using data::preprocessors::Preprocessor;
using trireme::Dict;
using trireme::List;

// Columns of plain values, written by Python as "name<tab>kind<tab>value<tab>value...". Nulls are "\\N".
trireme::Value parsed(const std::string& kind, const std::string& text) {
  if (text == "\\N") return nullptr;
  if (kind == "float") return std::stod(text);
  if (kind == "int") return std::stoll(text);
  if (kind == "bool") return text == "1";
  if (kind == "text") return text;
  List list;  // for text lists
  std::string::size_type begin = 0;
  while (begin < text.size()) {
    const auto end = text.find(',', begin);
    list.emplace_back(text.substr(begin, end - begin));
    if (end == std::string::npos) break;
    begin = end + 1;
  }
  return list;
}

Dict columns_in(const std::string& path) {
  std::ifstream file(path);
  Dict columns;
  for (std::string line; std::getline(file, line);) {
    std::vector<std::string> parts;
    std::string::size_type begin = 0;
    while (true) {
      const auto end = line.find('\t', begin);
      parts.push_back(line.substr(begin, end - begin));
      if (end == std::string::npos) break;
      begin = end + 1;
    }
    List values;
    for (std::size_t i = 2; i < parts.size(); ++i) values.push_back(parsed(parts[1], parts[i]));
    columns[parts[0]] = std::move(values);
  }
  return columns;
}

std::string shown(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", number);
  return text;
}

void print(const trireme::Value& value);

template <typename Range>
void print_list(const Range& values) {
  const char* separator = "[";
  for (const auto& each : values) {
    std::cout << separator;
    if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(each)>>) print(trireme::Value(each));
    else print(each);
    separator = ", ";
  }
  std::cout << (values.empty() ? "[]" : "]");
}

void print_tensor(const trireme::Tensor& tensor) {
  using trireme::DType;
  switch (tensor.dtype()) {
    case DType::kF64: return print_list(tensor.values<double>());
    case DType::kF32: return print_list(tensor.values<float>());
    case DType::kI64: return print_list(tensor.values<std::int64_t>());
    case DType::kU8: return print_list(tensor.values<std::uint8_t>());
    case DType::kBool: return print_list(tensor.values<bool>());
    default: throw std::runtime_error(tensor.describe());
  }
}

// As JSON; the test's texts need no escaping. Tensors are flattened.
void print(const trireme::Value& value) {
  if (value.is_null()) std::cout << "null";
  else if (const auto* text = value.get_if<std::string>()) std::cout << '"' << *text << '"';
  else if (const auto* whole = value.get_if<std::int64_t>()) std::cout << *whole;
  else if (const auto* number = value.get_if<double>()) std::cout << (std::isnan(*number) ? "NaN" : shown(*number));
  else if (const auto* flag = value.get_if<bool>()) std::cout << (*flag ? "true" : "false");
  else if (const auto* list = value.get_if<List>()) print_list(*list);
  else print_tensor(value.as_tensor());
}

void print_line(const Dict& values) {
  const char* separator = "{";
  for (const auto& [name, value] : values) {
    std::cout << separator << '"' << name << "\": ";
    print(value);
    separator = ", ";
  }
  std::cout << "}\n";
}

// Loads the folder's preprocessor, fits it if needed, and writes its state.
int fit(const std::string& folder) {
  auto preprocessor = Preprocessor::load(folder);
  preprocessor.fit(data::from_columns(columns_in(folder + "/rows.txt")).repartition(3));
  preprocessor.save(folder + "/fitted");
  return 0;
}

// Row by row from a dataset of several fragments, and then all columns at once.
int transform(const std::string& folder) {
  const auto preprocessor = Preprocessor::load(folder);
  const auto columns = columns_in(folder + "/rows.txt");
  for (const auto& row : preprocessor.transform(data::from_columns(columns).repartition(4)).take_all()) print_line(row);
  print_line(preprocessor.transform_batch(columns));
  return 0;
}

int back(const std::string& folder) {
  print_line(Preprocessor::load(folder).inverse_transform_batch(columns_in(folder + "/rows.txt")));
  return 0;
}

int describe(const std::string& folder) {
  std::cout << Preprocessor::load(folder).describe() << "\n";
  return 0;
}

const std::map<std::string, std::function<int(const std::string&)>> kWays = {
    {"fit", fit}, {"transform", transform}, {"back", back}, {"describe", describe}};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || !kWays.contains(argv[1])) return 2;
  try {
    return kWays.at(argv[1])(argv[2]);
  } catch (const std::exception& error) {
    std::cout << error.what() << "\n";
    return 1;
  }
}
