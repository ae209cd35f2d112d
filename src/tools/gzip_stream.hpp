// SPDX-License-Identifier: Apache-2.0
// Byte sources and sinks for gzip data. The only part of the project that needs zlib; the library
// does not. Not thread-safe.
#pragma once

#include "trace/byte_stream.hpp"

namespace quarry::tools {

// The bytes of `compressed` unpacked, if they begin as gzip does; otherwise the bytes themselves.
// Several gzip members in a row are one text, as for gunzip. Data that ends within a member, that
// is damaged, or that is followed by anything else is a failure of the source.
ByteSource make_gunzip_source(ByteSource compressed);

// Packs into `compressed`. A call with an empty span ends the gzip data.
ByteSink make_gzip_sink(ByteSink compressed);

}  // namespace quarry::tools
