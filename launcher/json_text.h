#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "launcher/image_info.h"

namespace varve::launcher {

// varvefs' JSON documents, read and written in one place.

struct AttachRequest {
  std::string store;
  std::string image;
  std::vector<std::string> layers;
  std::string domain;
  bool mounts = false;
  bool keep = false;
};
std::string to_json(const AttachRequest& request);

/// Errors: kCorruption, naming the member that is missing or of another type.
Result<ImageInfo> parse_image_info(std::string_view text);

/// {"error": {"code", "message"}}; both empty when the text is something else.
struct ErrorText {
  std::string code;
  std::string message;
};
ErrorText parse_error_text(std::string_view text);

std::string detach_json(const std::string& lease);
std::string keep_namespace_json(const std::string& name);

}  // namespace varve::launcher
