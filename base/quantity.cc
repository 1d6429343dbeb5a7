#include "base/quantity.h"

#include <algorithm>
#include <charconv>
#include <string>

namespace varve {
namespace {

// With three decimals as many digits as a uint64_t holds whatever they are.
constexpr size_t kWholeDigitsMax = 16;

}  // namespace

std::optional<uint64_t> parse_thousandths(std::string_view text) {
  const size_t dot = text.find('.');
  const std::string_view whole = text.substr(0, dot);
  const std::string_view decimals = dot == std::string_view::npos ? "" : text.substr(dot + 1);
  if (whole.empty() || decimals.size() > 3 || (dot != std::string_view::npos && decimals.empty())) {
    return std::nullopt;
  }
  const auto digits = [](std::string_view part) {
    return std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  if (!digits(whole) || !digits(decimals) || whole.size() > kWholeDigitsMax) return std::nullopt;
  const std::string scaled =
      std::string(whole) + std::string(decimals) + std::string(3 - decimals.size(), '0');
  uint64_t value = 0;
  const auto result = std::from_chars(scaled.data(), scaled.data() + scaled.size(), value);
  if (result.ec != std::errc()) return std::nullopt;
  return value;
}

std::optional<uint64_t> parse_bytes(std::string_view text) {
  size_t end = text.find_first_not_of("0123456789.");
  const std::string_view number = text.substr(0, end);
  std::string_view suffix = end == std::string_view::npos ? "" : text.substr(end);
  const auto thousandths = parse_thousandths(number);
  if (!thousandths) return std::nullopt;
  uint64_t unit = 1;
  if (!suffix.empty() && suffix != "B" && suffix != "b") {
    const std::string_view units = "kmgt";
    const size_t power = units.find(static_cast<char>(suffix[0] | 0x20));
    if (power == std::string_view::npos) return std::nullopt;
    unit = uint64_t{1} << (10 * (power + 1));
    suffix.remove_prefix(1);
    if (!suffix.empty() && suffix != "iB" && suffix != "B" && suffix != "b") return std::nullopt;
  }
  uint64_t scaled = 0;
  if (__builtin_mul_overflow(*thousandths, unit, &scaled)) return std::nullopt;
  return scaled / 1000;
}

}  // namespace varve
