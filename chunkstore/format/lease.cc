#include "chunkstore/format/lease.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <boost/json.hpp>

#include "base/check.h"
#include "base/hash.h"
#include "chunkstore/format/internal/json.h"
#include "chunkstore/format/object_prefix.h"

namespace varve::chunkstore {
namespace {

namespace json = boost::json;

constexpr std::string_view kLeaseType = "varve.lease";
constexpr std::string_view kTombstoneType = "varve.tombstone";
constexpr std::string_view kStoreType = "varve.store";

Bytes finish(json::object object, std::string_view type) {
  object.emplace("type", type);
  object.emplace("version", kFormatVersion);
  const std::string text = canonical_json(std::move(object));
  return Bytes(text.begin(), text.end());
}

}  // namespace

Bytes encode_lease(const LeaseRecord& lease) {
  VARVE_CHECK_OP(lease.objects.size(), <=, kLeaseObjectCountMax);
  json::object object;
  object.emplace("expires_s", lease.expires_s);
  json::array objects;
  for (const std::string& key : lease.objects) objects.emplace_back(key);
  object.emplace("objects", std::move(objects));
  return finish(std::move(object), kLeaseType);
}

Result<LeaseRecord> parse_lease(ByteView bytes) {
  VARVE_ASSIGN(const json::object object, parse_canonical_json(bytes, kLeaseBytesMax));
  VARVE_TRY(check_json_type(object, kLeaseType));
  LeaseRecord lease;
  VARVE_ASSIGN(lease.expires_s, get_integer(object, "expires_s"));
  VARVE_ASSIGN(lease.objects, get_strings(object, "objects", kLeaseObjectCountMax));
  return lease;
}

Bytes encode_tombstone(const TombstoneRecord& tombstone) {
  json::object object;
  object.emplace("due_s", tombstone.due_s);
  object.emplace("settled_s", tombstone.settled_s);
  return finish(std::move(object), kTombstoneType);
}

Result<TombstoneRecord> parse_tombstone(ByteView bytes) {
  VARVE_ASSIGN(const json::object object, parse_canonical_json(bytes, kTombstoneBytesMax));
  VARVE_TRY(check_json_type(object, kTombstoneType));
  TombstoneRecord tombstone;
  VARVE_ASSIGN(tombstone.due_s, get_integer(object, "due_s"));
  VARVE_ASSIGN(tombstone.settled_s, get_integer(object, "settled_s"));
  return tombstone;
}

Bytes encode_store_marker(const StoreMarker& marker) {
  json::object object;
  object.emplace("id", marker.id);
  return finish(std::move(object), kStoreType);
}

Result<StoreMarker> parse_store_marker(ByteView bytes) {
  VARVE_ASSIGN(const json::object object, parse_canonical_json(bytes, kStoreMarkerBytesMax));
  VARVE_TRY(check_json_type(object, kStoreType));
  StoreMarker marker;
  VARVE_ASSIGN(marker.id, get_string(object, "id"));
  if (!is_uuid(marker.id)) {
    return fail(ErrorCode::kCorruption, "store id " + quoted(marker.id) + " is not a UUID");
  }
  return marker;
}

std::string random_uuid() {
  uint8_t bytes[16];
  VARVE_CHECK_OP(::getrandom(bytes, sizeof(bytes), 0), ==, static_cast<ssize_t>(sizeof(bytes)));
  bytes[6] = static_cast<uint8_t>((bytes[6] & 0x0f) | 0x40);
  bytes[8] = static_cast<uint8_t>((bytes[8] & 0x3f) | 0x80);
  std::string text;
  for (size_t i = 0; i < sizeof(bytes); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", bytes[i]);
  }
  return text;
}

bool is_uuid(std::string_view text) {
  if (text.size() != 36) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_dash = i == 8 || i == 13 || i == 18 || i == 23;
    const bool is_hex = (text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f');
    if (is_dash ? text[i] != '-' : !is_hex) return false;
  }
  return true;
}

}  // namespace varve::chunkstore
