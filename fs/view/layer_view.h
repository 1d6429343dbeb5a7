#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "fs/layer/attached_layer.h"

namespace varve::fs {

/// The names in a layer's directory.
inline constexpr std::string_view kImageName = "image.erofs";
inline constexpr std::string_view kTreeName = "tree";

/// A layer as one trust domain sees it: a range of node ids. Thread-safe.
struct LayerView {
  LayerView(std::string domain_name, std::shared_ptr<AttachedLayer> attached, uint64_t first_node)
      : domain(std::move(domain_name)), layer(std::move(attached)), first_node_id(first_node) {}

  /// Node ids of a view, from first_node_id on: the layer's directory, image.erofs, and the inodes
  /// of the tree by their EROFS nid.
  static constexpr uint64_t kDirectory = 0;
  static constexpr uint64_t kImage = 1;
  static constexpr uint64_t kTree = 2;
  /// An inode takes at least 32 bytes of the metadata region, and nids count in those.
  static constexpr uint64_t kNidBytes = 32;

  static uint64_t node_count(const AttachedLayer& layer) {
    return kTree + layer.metadata_bytes() / kNidBytes + 1;
  }

  uint64_t tree_node_id(uint64_t nid) const { return first_node_id + kTree + nid; }

  const std::string domain;
  const std::shared_ptr<AttachedLayer> layer;
  const uint64_t first_node_id;
  /// References that the kernel holds on nodes of this view (nlookup).
  std::atomic<int64_t> lookup_count{0};
  /// Attaches that are not detached yet. Guarded by the node table.
  uint64_t attach_count = 0;
};

}  // namespace varve::fs
