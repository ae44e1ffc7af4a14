#include "formats/resample.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "formats/resample_weights.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace trireme::formats {
namespace {

constexpr std::int32_t kHalf = 1 << (kWeightBits - 1);

// 32 bits are enough for bytes, and twice as fast.
template <typename T>
using Sum = std::conditional_t<sizeof(T) == 1, std::int32_t, std::int64_t>;

template <typename T>
T rounded(Sum<T> sum) {
  return static_cast<T>(std::min<Sum<T>>(sum >> kWeightBits, std::numeric_limits<T>::max()));  // weights are >= 0
}

// Resamples lines of pixels; output pixels are `made` values apart.
template <typename T>
void across(const T* from, std::int64_t lines, std::int64_t line_values, std::int64_t step, const Weights& weights,
            std::int64_t made, T* to) {
  for (std::int64_t line = 0; line < lines; ++line, from += line_values) {
    for (const auto& span : weights.spans) {
      for (std::int64_t channel = 0; channel < step; ++channel) {
        Sum<T> sum = kHalf;
        const T* at = from + span.first * step + channel;
        for (std::int64_t i = 0; i < span.count; ++i) sum += static_cast<Sum<T>>(at[i * step]) * span.parts[i];
        to[channel] = rounded<T>(sum);
      }
      to += made;
    }
  }
}

// Resamples values of a line, from `begin` on, from the lines above and below it.
template <typename T>
void down(const T* line, std::int64_t line_values, const Weights::Span& span, std::int64_t begin, T* to) {
  for (std::int64_t at = begin; at < line_values; ++at) {
    Sum<T> sum = kHalf;
    for (std::int64_t i = 0; i < span.count; ++i)
      sum += static_cast<Sum<T>>(line[i * line_values + at]) * span.parts[i];
    to[at] = rounded<T>(sum);
  }
}

// Only the channels of a pixel.
void pack(const std::uint8_t* from, std::int64_t pixels, std::int64_t step, std::int64_t channels, std::uint8_t* to) {
  for (std::int64_t i = 0; i < pixels; ++i, from += step, to += channels) {
    for (std::int64_t channel = 0; channel < channels; ++channel) to[channel] = from[channel];
  }
}

// The same with eight numbers at a time, if the processor can. Compilers do not vectorize the loops above.
#if defined(__x86_64__)
#define TRIREME_AVX2 __attribute__((target("avx2")))

bool wide() { return __builtin_cpu_supports("avx2") != 0; }

TRIREME_AVX2 inline __m256i part_of(const Weights::Span& span, std::int64_t i) {
  return _mm256_set1_epi32(span.parts[i]);
}

// Packs eight sums into the bytes 0 to 3 of both halves.
TRIREME_AVX2 inline __m256i bytes_of(__m256i sums) {
  const __m256i values = _mm256_srai_epi32(sums, kWeightBits);
  return _mm256_packus_epi16(_mm256_packs_epi32(values, values), _mm256_setzero_si256());
}

TRIREME_AVX2 inline __m256i two_pixels(const std::uint8_t* one, const std::uint8_t* other) {
  return _mm256_cvtepu8_epi32(_mm_unpacklo_epi32(_mm_loadu_si32(one), _mm_loadu_si32(other)));
}

TRIREME_AVX2 inline __m256i eight_bytes(const std::uint8_t* from) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
}

// Four lines of four-byte pixels. Reads up to two bytes past the last pixel if `step` is smaller.
TRIREME_AVX2 void across_four(const std::uint8_t* from, std::int64_t line_bytes, std::int64_t step,
                              const Weights& weights, std::uint8_t* to) {
  const auto line_made = static_cast<std::int64_t>(weights.spans.size()) * 4;
  for (const auto& span : weights.spans) {
    __m256i upper = _mm256_set1_epi32(kHalf);
    __m256i lower = upper;
    const std::uint8_t* at = from + span.first * step;
    for (std::int64_t i = 0; i < span.count; ++i, at += step) {
      const __m256i part = part_of(span, i);
      upper = _mm256_add_epi32(upper, _mm256_mullo_epi32(two_pixels(at, at + line_bytes), part));
      lower = _mm256_add_epi32(lower, _mm256_mullo_epi32(two_pixels(at + 2 * line_bytes, at + 3 * line_bytes), part));
    }
    upper = bytes_of(upper);
    lower = bytes_of(lower);
    _mm_storeu_si32(to, _mm256_castsi256_si128(upper));
    _mm_storeu_si32(to + line_made, _mm256_extracti128_si256(upper, 1));
    _mm_storeu_si32(to + 2 * line_made, _mm256_castsi256_si128(lower));
    _mm_storeu_si32(to + 3 * line_made, _mm256_extracti128_si256(lower, 1));
    to += 4;
  }
}

// Returns the position where it stopped: the rest does not fill a register.
TRIREME_AVX2 std::int64_t down_wide(const std::uint8_t* line, std::int64_t line_bytes, const Weights::Span& span,
                                    std::uint8_t* to) {
  std::int64_t at = 0;
  for (; at + 16 <= line_bytes; at += 16) {
    __m256i left = _mm256_set1_epi32(kHalf);
    __m256i right = left;
    for (std::int64_t i = 0; i < span.count; ++i) {
      const std::uint8_t* bytes = line + i * line_bytes + at;
      const __m256i part = part_of(span, i);
      left = _mm256_add_epi32(left, _mm256_mullo_epi32(eight_bytes(bytes), part));
      right = _mm256_add_epi32(right, _mm256_mullo_epi32(eight_bytes(bytes + 8), part));
    }
    left = bytes_of(left);
    right = bytes_of(right);
    _mm_storeu_si32(to + at, _mm256_castsi256_si128(left));
    _mm_storeu_si32(to + at + 4, _mm256_extracti128_si256(left, 1));
    _mm_storeu_si32(to + at + 8, _mm256_castsi256_si128(right));
    _mm_storeu_si32(to + at + 12, _mm256_extracti128_si256(right, 1));
  }
  return at;
}

// Three bytes of each four. Returns the position where it stopped: it writes four bytes more than it packs.
TRIREME_AVX2 std::int64_t pack_wide(const std::uint8_t* from, std::int64_t pixels, std::uint8_t* to) {
  const __m128i places = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
  std::int64_t at = 0;
  for (; at + 6 <= pixels; at += 4) {
    const __m128i four = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at * 4));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + at * 3), _mm_shuffle_epi8(four, places));
  }
  return at;
}
#else
bool wide() { return false; }
void across_four(const std::uint8_t*, std::int64_t, std::int64_t, const Weights&, std::uint8_t*) {}
std::int64_t down_wide(const std::uint8_t*, std::int64_t, const Weights::Span&, std::uint8_t*) { return 0; }
std::int64_t pack_wide(const std::uint8_t*, std::int64_t, std::uint8_t*) { return 0; }
#endif

using Memory = std::unique_ptr<std::uint8_t[]>;

Memory memory_of(std::int64_t bytes) {
  return std::make_unique_for_overwrite<std::uint8_t[]>(static_cast<std::size_t>(bytes));
}

// Pixels of one or four bytes.
Memory with_width(const Pixels& pixels, std::int64_t width, std::int64_t made) {
  const Weights weights = weights_of(pixels.width, width);
  const std::int64_t line_bytes = pixels.width * pixels.step;
  Memory memory = memory_of(pixels.height * width * made);
  std::int64_t done = 0;
  if (made == 4 && wide()) {
    // Not for the last line: reading past it is invalid.
    const std::int64_t end = pixels.height - 1;
    while (done < end && end >= 4) {
      const std::int64_t line = std::min(done, end - 4);
      across_four(pixels.data + line * line_bytes, line_bytes, pixels.step, weights,
                  memory.get() + line * width * made);
      done = line + 4;
    }
  }
  across(pixels.data + done * line_bytes, pixels.height - done, line_bytes, pixels.step, weights, made,
         memory.get() + done * width * made);
  return memory;
}

void bring_to_height(const std::uint8_t* from, std::int64_t from_height, std::int64_t height, std::int64_t line_bytes,
                     std::uint8_t* to) {
  const Weights weights = weights_of(from_height, height);
  for (const auto& span : weights.spans) {
    const std::uint8_t* line = from + span.first * line_bytes;
    down(line, line_bytes, span, wide() ? down_wide(line, line_bytes, span, to) : 0, to);
    to += line_bytes;
  }
}

}  // namespace

void resample_grey16(const std::uint16_t* values, std::int64_t from_height, std::int64_t from_width, std::uint16_t* out,
                     std::int64_t height, std::int64_t width) {
  std::vector<std::uint16_t> between(static_cast<std::size_t>(from_height * width));
  across(values, from_height, from_width, 1, weights_of(from_width, width), 1, between.data());
  const Weights weights = weights_of(from_height, height);
  for (const auto& span : weights.spans) {
    down(between.data() + span.first * width, width, span, 0, out);
    out += width;
  }
}

void resample(const Pixels& pixels, std::uint8_t* out, std::int64_t height, std::int64_t width) {
  TRIREME_CHECK(pixels.channels >= 1 && pixels.channels <= pixels.step && pixels.step <= 4, "{} channels in {} bytes",
                pixels.channels, pixels.step);
  TRIREME_CHECK(pixels.height > 0 && pixels.width > 0 && height > 0 && width > 0, "{} x {} pixels to {} x {}",
                pixels.height, pixels.width, height, width);
  const std::uint8_t* at = pixels.data;
  std::int64_t step = pixels.step;
  Memory between, made;
  if (width != pixels.width) {
    step = step == 1 ? 1 : 4;
    between = with_width(pixels, width, step);
    at = between.get();
  }
  if (height != pixels.height) {
    if (step == pixels.channels) return bring_to_height(at, pixels.height, height, width * step, out);
    made = memory_of(height * width * step);
    bring_to_height(at, pixels.height, height, width * step, made.get());
    at = made.get();
  }
  const std::int64_t count = height * width;
  const std::int64_t packed = step == 4 && pixels.channels == 3 && wide() ? pack_wide(at, count, out) : 0;
  pack(at + packed * step, count - packed, step, pixels.channels, out + packed * pixels.channels);
}

}  // namespace trireme::formats
