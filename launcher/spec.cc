#include "launcher/spec.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/bytes.h"
#include "base/quantity.h"

namespace varve::launcher {
namespace {

bool is_layer_id(std::string_view text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

tl::unexpected<Error> bad(const std::string& option, const std::string& why) {
  return fail(ErrorCode::kInvalidArgument, option + ": " + why);
}

Status require_absolute(const std::string& option, const std::string& path) {
  if (!path.empty() && path[0] == '/') return {};
  return bad(option, quoted(path) + " is not an absolute path");
}

/// What is a number has to be an id; names are looked up in the image.
Status validate_user(const std::string& user) {
  if (user.find(':') == 0) return bad("--user", quoted(user) + " names no user");
  const size_t colon = user.find(':');
  for (const std::string& part :
       {user.substr(0, colon), colon == std::string::npos ? "" : user.substr(colon + 1)}) {
    const bool is_number =
        !part.empty() && part[0] != '0' && part.find_first_not_of("0123456789") == part.npos;
    if (is_number && parse_u32(part).value_or(kNoId) == kNoId) {
      return bad("--user", quoted(part) + " is not an id: they go from 0 to 4294967294");
    }
  }
  return {};
}

bool has_nul(std::string_view text) {
  return text.find('\0') != std::string_view::npos;
}

}  // namespace

std::optional<uint32_t> parse_cpus(std::string_view text) {
  const auto thousandths = parse_thousandths(text);
  if (!thousandths || *thousandths > std::numeric_limits<uint32_t>::max()) return std::nullopt;
  return static_cast<uint32_t>(*thousandths);
}

std::optional<uint32_t> parse_u32(std::string_view text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  if (text.size() > 1 && text[0] == '0') return std::nullopt;
  return value;
}

Status validate_layers(const std::vector<std::string>& extra_layers, const std::string& domain,
                       const std::string& run_dir) {
  for (const std::string& layer : extra_layers) {
    if (!is_layer_id(layer))
      return bad("--layer", quoted(layer) + " is not a layer id (64 hex digits)");
  }
  if (domain.empty() || domain.find('/') != std::string::npos || domain[0] == '.') {
    return bad("--domain", quoted(domain) + " is not a name");
  }
  return require_absolute("--run-dir", run_dir);
}

Status validate(const Spec& spec) {
  if (spec.image.empty()) return bad("IMAGE", "must not be empty");
  VARVE_TRY(validate_layers(spec.extra_layers, spec.domain, spec.run_dir));
  for (const std::string& variable : spec.env) {
    if (variable.find('=') == std::string::npos || variable[0] == '=' || has_nul(variable)) {
      return bad("--env", quoted(variable) + " is not NAME=VALUE");
    }
  }
  if (!spec.workdir.empty()) VARVE_TRY(require_absolute("--workdir", spec.workdir));
  if (spec.rw_bytes_max && spec.keep) {
    return bad("--keep", "cannot be combined with --rw-size, whose files live in memory");
  }
  VARVE_TRY(validate_user(spec.user));
  return require_absolute("--state-dir", spec.state_dir);
}

}  // namespace varve::launcher
