#include "wire/message.h"

#include "base/json.h"

namespace trireme::wire {
namespace {

template <typename T>
struct Number;
#define TRIREME_MESSAGE_NUMBER(number, Name, TABLE) \
  template <>                                       \
  struct Number<Name> {                             \
    static constexpr int value = number;            \
    static constexpr const char* name = #Name;      \
  };
TRIREME_MESSAGES(TRIREME_MESSAGE_NUMBER)
#undef TRIREME_MESSAGE_NUMBER

template <typename T>
base::Result<Message> decode_as(const List& list) {
  TRIREME_ASSIGN(auto body, base::take_fields<T>(list, 1), "{}", Number<T>::name);
  return Message(std::move(body));
}

}  // namespace

const char* name_of(const Message& message) {
  return std::visit(
      []<typename T>(const T&) {
        if constexpr (std::same_as<T, std::monostate>) {
          return "nothing";
        } else {
          return Number<T>::name;
        }
      },
      message);
}

std::string encode(const Message& message) {
  List list;
  std::visit(
      [&]<typename T>(const T& body) {
        if constexpr (!std::same_as<T, std::monostate>) {
          list.reserve(8);
          list.emplace_back(Number<T>::value);
          base::append_fields(list, body);
        }
      },
      message);
  TRIREME_CHECK(!list.empty(), "an empty message was sent");
  return base::to_msgpack(std::move(list));
}

base::Result<Message> decode(std::string_view payload) {
  TRIREME_ASSIGN(auto value, base::parse_msgpack(payload));
  const auto* list = value.get_if<List>();
  if (!list || list->empty()) return base::error("not a message");
  const auto* number = list->front().get_if<std::int64_t>();
  if (!number) return base::error("a message without a number");
  switch (*number) {
#define TRIREME_MESSAGE_CASE(number, Name, TABLE) \
  case number: return decode_as<Name>(*list);
    TRIREME_MESSAGES(TRIREME_MESSAGE_CASE)
#undef TRIREME_MESSAGE_CASE
    default: return base::error("unknown message {}", *number);
  }
}

Dict describe_messages() {
  Dict all;
#define TRIREME_MESSAGE_DESCRIBE(number, Name, TABLE)                                              \
  {                                                                                                \
    List fields;                                                                                   \
    base::Fields<Name>::each([&](const char* name, auto member, const char* doc) {                 \
      using Member = std::remove_cvref_t<decltype(std::declval<Name>().*member)>;                  \
      fields.push_back(Dict{{"name", name}, {"type", base::Codec<Member>::kind()}, {"doc", doc}}); \
    });                                                                                            \
    all[#Name] = Dict{{"number", number}, {"fields", fields}};                                     \
  }
  TRIREME_MESSAGES(TRIREME_MESSAGE_DESCRIBE)
#undef TRIREME_MESSAGE_DESCRIBE
  return all;
}

}  // namespace trireme::wire
