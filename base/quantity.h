#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace varve {

// Numbers as command lines spell them. Pure; nothing is returned on anything malformed.

/// "12.345" as thousandths. At most three decimals, so that no rounding can surprise, and at most
/// 16 digits before them.
std::optional<uint64_t> parse_thousandths(std::string_view text);

/// "512", "64k", "1.5G", "2GiB", "3MB": bytes; every unit is a binary multiple. Also nothing when
/// 1,000 times the number of bytes passes 2^64 (from 16778T on).
std::optional<uint64_t> parse_bytes(std::string_view text);

}  // namespace varve
