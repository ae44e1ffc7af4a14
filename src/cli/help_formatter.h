#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/script.h"

namespace trireme::cli {

// Help texts without the names of C++ types: "--num-cpus N" instead of "--num-cpus FLOAT:NONNEGATIVE".
class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string name) const override {
    return app->get_prefix_command() ? "Usage: " + usage_of(app->get_name()) + "\n" : Formatter::make_usage(app, name);
  }

  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    const std::string name = Formatter::make_option_name(option, positional);
    return name.substr(0, name.find('{'));  // the value of a flag: --ray-compat{on}
  }

  std::string make_option_opts(const CLI::Option* option) const override {
    std::string type = option->get_type_name();
    if (type.empty() || option->get_positional()) return "";  // empty: a flag
    if (const auto choices = type.find('{'); choices != std::string::npos) {
      type = type.substr(choices);
    } else {
      type = type.starts_with("TEXT") ? "VALUE" : "N";
    }
    return option->get_expected_min() == 0 ? "[=" + type + "]" : " " + type;
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text = Formatter::make_option_desc(option);
    if (!option->get_default_str().empty()) text += " (default: " + option->get_default_str() + ")";
    return option->get_required() && !option->get_positional() ? text + " (required)" : text;
  }
};

}  // namespace trireme::cli
