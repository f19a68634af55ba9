// Numbers that one thread writes and any thread reads: counters of a data path that a control path
// shows. The writer pays what a plain addition costs; a reader may be one behind.
//
// For members of plain structs. Whoever reads several of them has them of no one moment.
#pragma once

#include <atomic>
#include <concepts>
#include <type_traits>

namespace braid::base {

/// Any thread.
template <std::unsigned_integral T>
T read_shared(const T& value) {
  return std::atomic_ref<T>(const_cast<T&>(value)).load(std::memory_order_relaxed);
}
/// The writer.
template <std::unsigned_integral T>
void write_shared(T& value, std::type_identity_t<T> to) {
  std::atomic_ref<T>(value).store(to, std::memory_order_relaxed);
}
template <std::unsigned_integral T>
void add_shared(T& value, std::type_identity_t<T> amount) {
  write_shared(value, static_cast<T>(read_shared(value) + amount));
}
template <std::unsigned_integral T>
void subtract_shared(T& value, std::type_identity_t<T> amount) {
  write_shared(value, static_cast<T>(read_shared(value) - amount));
}

}  // namespace braid::base
