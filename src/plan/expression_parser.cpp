#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "plan/expression_node.h"
#include "plan/expression_tokens.h"

// The part of Python's expression grammar that columns support. Nothing is ever evaluated.

namespace trireme::plan {
namespace {

using Pointer = ExpressionPointer;

constexpr int kMostNested = 100;
constexpr std::string_view kHint =
    "use comparisons, and/or/not, in, is None and arithmetic on columns, or pass a function";

// Operations that are consecutive.
struct Range {
  Operation first;
  Operation last;
};
constexpr Range kFunctions{Operation::kIsNull, Operation::kUpper};
constexpr Range kComparisons{Operation::kEqual, Operation::kGreaterEqual};
constexpr Range kSums{Operation::kAdd, Operation::kSubtract};
constexpr Range kProducts{Operation::kMultiply, Operation::kModulo};

std::optional<Operation> find_operation(Range range, std::string_view sign) {
  for (auto each = static_cast<int>(range.first); each <= static_cast<int>(range.last); ++each) {
    if (sign_of(static_cast<Operation>(each)) == sign) return static_cast<Operation>(each);
  }
  return {};
}

bool is_none(const Pointer& node) { return node->operation == Operation::kLiteral && node->literal.is_null(); }

class Parser {
 public:
  Parser(std::string_view text, std::vector<Token> tokens) : text_(text), tokens_(std::move(tokens)) {}

  base::Result<Pointer> run() {
    TRIREME_ASSIGN(auto node, any());
    if (now().kind != TokenKind::kEnd) return unexpected();
    return lifted(std::move(node), 0);
  }

 private:
  using Rule = base::Result<Pointer> (Parser::*)();

  const Token& now() const { return tokens_[at_]; }
  bool is(std::string_view text) const {
    return (now().kind == TokenKind::kSign || now().kind == TokenKind::kName) && now().text == text;
  }
  bool takes(std::string_view text) {
    if (!is(text)) return false;
    ++at_;
    return true;
  }

  base::Error wrong(std::string_view what) const { return syntax_error(text_, now().begin, what); }
  base::Error unexpected() const {
    if (now().kind == TokenKind::kEnd) return wrong("unexpected end");
    return wrong(fmt::format("unexpected '{}'", text_.substr(now().begin, now().end - now().begin)));
  }
  // The text from the token on is valid Python, but not supported for columns.
  base::Error refused(std::size_t token, std::string_view why = kHint) const {
    const std::size_t begin = tokens_[token].begin;
    const std::size_t end = std::max(tokens_[at_ > token ? at_ - 1 : token].end, begin);
    return base::error("'{}' in the expression '{}' is not supported: {} (position {})",
                       text_.substr(begin, end - begin), text_, why, begin);
  }

  base::Result<Pointer> lifted(Pointer node, std::size_t token) const {
    if (node->operation == Operation::kList) return refused(token, "a list may only follow `in`: x in [1, 2]");
    return node;
  }

  base::Result<Pointer> made(std::size_t token, Operation operation, std::vector<Pointer> inputs,
                             List values = {}) const {
    for (auto& input : inputs) {
      TRIREME_ASSIGN(input, lifted(std::move(input), token));
    }
    TRIREME_ASSIGN(auto node, make_node(operation, std::move(inputs), std::move(values)), "the expression '{}'", text_);
    return node;
  }

  base::Result<Pointer> any() {
    if (++nested_ > kMostNested) return wrong(fmt::format("it is nested more than {} deep", kMostNested));
    auto node = disjunction();
    --nested_;
    return node;
  }

  base::Result<Pointer> disjunction() { return joined("or", Operation::kOr, &Parser::conjunction); }
  base::Result<Pointer> conjunction() { return joined("and", Operation::kAnd, &Parser::negation); }
  base::Result<Pointer> either() { return joined("|", Operation::kOr, &Parser::both); }
  base::Result<Pointer> both() { return joined("&", Operation::kAnd, &Parser::sum); }
  base::Result<Pointer> sum() { return chained(kSums, &Parser::product); }
  base::Result<Pointer> product() { return chained(kProducts, &Parser::unary); }

  base::Result<Pointer> joined(std::string_view word, Operation operation, Rule part) {
    const std::size_t token = at_;
    TRIREME_ASSIGN(auto first, (this->*part)());
    if (!is(word)) return first;
    std::vector<Pointer> inputs{std::move(first)};
    while (takes(word)) {
      TRIREME_ASSIGN(auto next, (this->*part)());
      inputs.push_back(std::move(next));
    }
    return made(token, operation, std::move(inputs));
  }

  base::Result<Pointer> chained(Range operators, Rule part) {
    const std::size_t token = at_;
    TRIREME_ASSIGN(auto left, (this->*part)());
    while (true) {
      const auto found = now().kind == TokenKind::kSign ? find_operation(operators, now().text) : std::nullopt;
      if (!found) return left;
      ++at_;
      TRIREME_ASSIGN(auto right, (this->*part)());
      TRIREME_ASSIGN(left, made(token, *found, {std::move(left), std::move(right)}));
    }
  }

  base::Result<Pointer> negation() {
    const std::size_t token = at_;
    std::size_t times = 0;
    while (takes("not")) ++times;
    TRIREME_ASSIGN(auto node, comparison());
    for (; times > 0; --times) {
      TRIREME_ASSIGN(node, made(token, Operation::kNot, {std::move(node)}));
    }
    return node;
  }

  // a < b < c: each with the next.
  base::Result<Pointer> comparison() {
    const std::size_t token = at_;
    TRIREME_ASSIGN(auto left, either());
    std::vector<Pointer> parts;
    while (true) {
      const std::size_t sign = at_;
      const auto compares = now().kind == TokenKind::kSign ? find_operation(kComparisons, now().text) : std::nullopt;
      if (!compares && !is("in") && !is("is") && !(is("not") && tokens_[at_ + 1].text == "in")) break;
      ++at_;
      const bool negated = tokens_[sign].text == "not" || (tokens_[sign].text == "is" && takes("not"));
      if (tokens_[sign].text == "not") ++at_;
      const std::size_t other = at_;
      TRIREME_ASSIGN(auto right, either());
      Pointer one;
      if (compares) {
        TRIREME_ASSIGN(one, compared(token, *compares, left, right));
      } else if (tokens_[sign].text == "is") {
        if (!is_none(right)) return refused(other, "`is` works only with None: use == to compare");
        TRIREME_ASSIGN(one, made(token, negated ? Operation::kIsValid : Operation::kIsNull, {left}));
      } else {
        if (right->operation != Operation::kList) return refused(other, "`in` needs a list of values: x in [1, 2]");
        TRIREME_ASSIGN(one, made(token, Operation::kIn, {left}, right->values));
        if (negated) {
          TRIREME_ASSIGN(one, made(token, Operation::kNot, {std::move(one)}));
        }
      }
      parts.push_back(std::move(one));
      left = std::move(right);
    }
    if (parts.empty()) return left;
    if (parts.size() == 1) return parts.front();
    return made(token, Operation::kAnd, std::move(parts));
  }

  base::Result<Pointer> compared(std::size_t token, Operation operation, Pointer left, const Pointer& right) const {
    if (is_none(right) && operation == Operation::kEqual) return made(token, Operation::kIsNull, {std::move(left)});
    if (is_none(right) && operation == Operation::kUnequal) return made(token, Operation::kIsValid, {std::move(left)});
    return made(token, operation, {std::move(left), right});
  }

  base::Result<Pointer> unary() {
    const std::size_t token = at_;
    if (is("+")) {
      ++at_;
      TRIREME_TRY(nested_unary());
      return refused(token);
    }
    if (takes("~")) {
      TRIREME_ASSIGN(auto node, nested_unary());
      return made(token, Operation::kNot, {std::move(node)});
    }
    if (!takes("-")) return power();
    // The smallest integer has no positive counterpart that could be negated.
    if (now().kind == TokenKind::kWhole && now().whole == std::uint64_t{1} << 63 && tokens_[at_ + 1].text != "**") {
      ++at_;
      return literal_node(std::numeric_limits<std::int64_t>::min());
    }
    TRIREME_ASSIGN(auto node, nested_unary());
    if (node->operation != Operation::kLiteral) return made(token, Operation::kNegate, {std::move(node)});
    return negated(token, node->literal);
  }

  base::Result<Pointer> nested_unary() {
    if (++nested_ > kMostNested) return wrong(fmt::format("it is nested more than {} deep", kMostNested));
    auto node = unary();
    --nested_;
    return node;
  }

  base::Result<Pointer> negated(std::size_t token, const Value& value) const {
    if (const auto* flag = value.get_if<bool>()) return literal_node(*flag ? -1 : 0);
    if (const auto* real = value.get_if<double>()) return literal_node(-*real);
    const auto* whole = value.get_if<std::int64_t>();
    if (!whole || *whole == std::numeric_limits<std::int64_t>::min()) return refused(token, "it cannot be negated");
    return literal_node(-*whole);
  }

  base::Result<Pointer> power() {
    const std::size_t token = at_;
    TRIREME_ASSIGN(auto base, atom());
    if (!takes("**")) return base;
    TRIREME_ASSIGN(auto exponent, nested_unary());
    return made(token, Operation::kPower, {std::move(base), std::move(exponent)});
  }

  base::Result<Pointer> atom() {
    const std::size_t token = at_;
    TRIREME_ASSIGN(auto node, plain_atom());
    if (is(".") || is("[") || is("(") || is("^") || is("<<") || is(">>") || is("@") || is("if")) {
      ++at_;
      return refused(token);
    }
    return node;
  }

  base::Result<Pointer> plain_atom() {
    const Token& token = now();
    switch (token.kind) {
      case TokenKind::kWhole:
        if (token.whole > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
          return wrong("this number is too large for 64 bits");
        ++at_;
        return literal_node(token.whole);
      case TokenKind::kReal: ++at_; return literal_node(token.real);
      case TokenKind::kText:
      case TokenKind::kBytes: return literal_text();
      case TokenKind::kName: return named();
      default: break;
    }
    if (takes("(")) return in_parentheses();
    if (takes("[")) return list({}, "]");
    if (takes("{")) return list({}, "}");
    return unexpected();
  }

  // Adjacent string literals are concatenated.
  base::Result<Pointer> literal_text() {
    const TokenKind kind = now().kind;
    std::string text;
    while (now().kind == TokenKind::kText || now().kind == TokenKind::kBytes) {
      if (now().kind != kind) return wrong("text and bytes cannot be mixed");
      text += tokens_[at_++].text;
    }
    return literal_node(kind == TokenKind::kBytes ? Value(Bytes{std::move(text)}) : Value(std::move(text)));
  }

  base::Result<Pointer> named() {
    const std::size_t token = at_;
    if (takes("None")) return literal_node(nullptr);
    if (takes("True")) return literal_node(true);
    if (takes("False")) return literal_node(false);
    const std::string name = now().text;
    if (!is_name(name)) return unexpected();
    ++at_;
    if (!takes("(")) return column_node(name);
    TRIREME_ASSIGN(auto argument, any());
    const bool one = takes(")");
    const bool text = argument->operation == Operation::kLiteral && argument->literal.get_if<std::string>();
    if (one && name == "col" && text) return column_node(argument->literal.as_string());
    const auto found = find_operation(kFunctions, name);
    if (!one && !is(",")) return unexpected();
    if (!one) return refused(token);
    if (!found) return refused(token, "the functions are col, abs, is_null, is_valid, is_nan, length, lower, upper");
    return made(token, *found, {std::move(argument)});
  }

  base::Result<Pointer> in_parentheses() {
    if (takes(")")) return make_node(Operation::kList, {});
    const std::size_t token = at_;
    TRIREME_ASSIGN(auto first, any());
    if (takes(")")) return first;
    if (!takes(",")) return unexpected();
    TRIREME_ASSIGN(auto value, value_of(first, token));
    return list({std::move(value)}, ")");
  }

  base::Result<Pointer> list(List values, std::string_view close) {
    while (!takes(close)) {
      const std::size_t token = at_;
      TRIREME_ASSIGN(const auto node, any());
      TRIREME_ASSIGN(auto value, value_of(node, token));
      values.push_back(std::move(value));
      if (!is(close) && !takes(",")) return unexpected();
    }
    return make_node(Operation::kList, {}, std::move(values));
  }

  base::Result<Value> value_of(const Pointer& node, std::size_t token) const {
    if (node->operation == Operation::kLiteral) return node->literal;
    return refused(token, "`in` needs a list of values: x in [1, 2]");
  }

  std::string_view text_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nested_ = 0;
};

}  // namespace

base::Result<ExpressionPointer> parse_expression(std::string_view text) {
  TRIREME_ASSIGN(auto tokens, tokens_of(text));
  return Parser(text, std::move(tokens)).run();
}

}  // namespace trireme::plan
