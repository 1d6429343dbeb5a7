#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/unique_fd.h"

namespace varve::launcher {

/// The run configuration of an image, as in the OCI image configuration.
struct ImageConfig {
  std::vector<std::string> env;
  std::vector<std::string> entrypoint;
  std::vector<std::string> command;
  std::string workdir;
  std::string user;
};

struct LayerInfo {
  std::string id;
  std::string path;  ///< image.erofs inside varvefs' FUSE mount.
  std::string tree;
  uint64_t image_bytes = 0;
  uint64_t stored_bytes = 0;
};

/// What varvefs answers to an attach.
struct ImageInfo {
  std::string id;
  ImageConfig config;
  std::vector<uint32_t> large_ids;  ///< User and group ids ≥ 65,536 that occur in the layers.
  std::vector<LayerInfo> layers;    ///< Lowest first.
  std::string lease;
};

/// Drops every lower occurrence of a layer that occurs again above, with its mount: what it holds
/// is seen through the upper one anyway, and overlayfs refuses one tree twice. `mounts` is empty or
/// has one entry a layer.
void drop_repeated_layers(std::vector<LayerInfo>& layers, std::vector<UniqueFd>& mounts);

/// Drops the layers below the topmost one whose root is marked opaque, with their mounts: overlayfs
/// heeds the mark everywhere but at the root. One mount a layer.
Status drop_hidden_layers(std::vector<LayerInfo>& layers, std::vector<UniqueFd>& mounts);

}  // namespace varve::launcher
