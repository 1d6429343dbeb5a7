#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

}  // namespace varve::launcher
