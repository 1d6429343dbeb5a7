#pragma once

#include <string>
#include <vector>

#include "fs/control/attach_service.h"
#include "fs/stats/touched_files.h"

/// The JSON of the control API. Boost.JSON stays in the .cc file.
namespace varve::fs {

/// Errors: kInvalidArgument (no JSON, a wrong type, a bad domain, a member that this version does
/// not know: it is never ignored).
Result<AttachRequest> parse_attach_request(const std::string& body);
/// The lease of a detach request.
Result<std::string> parse_detach_request(const std::string& body);

/// The name under which the caller's mount namespace is to be kept.
Result<std::string> parse_namespace_request(const std::string& body);

std::string attachment_json(const Attachment& attachment, const std::string& mountpoint);
std::string layers_json(const std::vector<std::shared_ptr<LayerView>>& views,
                        const std::string& mountpoint);
/// One entry a layer, however many domains it is in, and their sum.
std::string stats_json(const std::vector<std::shared_ptr<AttachedLayer>>& layers);
std::string touched_files_json(const Digest& layer, const TouchedFiles& files);
std::string error_json(const Error& error);

struct StatusFigures {
  int64_t pid = 0;
  std::string version;
  std::string mountpoint;
  std::string transport;
  std::string transport_fallback;
  std::vector<std::string> domains;
  uint64_t uptime_ms = 0;
  size_t attachment_count = 0;
  size_t layer_count = 0;
  size_t view_count = 0;
  size_t pending_read_count = 0;
  uint64_t oldest_read_ms = 0;
  uint64_t cache_bytes = 0;
  uint64_t cache_bytes_max = 0;
};
std::string status_json(const StatusFigures& figures);

}  // namespace varve::fs
