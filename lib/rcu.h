/* SPDX-License-Identifier: MIT */
/*
 * Read-side sections inside this process: liburcu's bulletproof flavour, inlined. A section keeps the view and the mapping that it found
 * from being freed; it is a few plain instructions, nests, and needs no registration. ThreadSanitizer does not know liburcu, so the two
 * promises that matter (what was read in a section happens before the free after a grace period) are told to it here.
 */
#ifndef RESC_RCU_H
#define RESC_RCU_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RCU_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define RCU_SANITIZED 1
#endif
#endif
/* Not inlined under a sanitizer: liburcu (0.13) puts its readers where their own type forbids it, which is its affair. */
#ifndef RCU_SANITIZED
#define URCU_INLINE_SMALL_FUNCTIONS
#define _LGPL_SOURCE /* NOLINT(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp): liburcu's word for "inline" */
#endif
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <urcu/urcu-bp.h>
#pragma GCC diagnostic pop

#if defined(__SANITIZE_THREAD__)
#define RCU_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RCU_TSAN 1
#endif
#endif

#ifdef RCU_TSAN
void __tsan_acquire(void *);
void __tsan_release(void *);
extern char rcu_tsan_tag;
#endif

static inline void read_lock(void)
{
#ifndef __clang_analyzer__ /* it cannot see that a thread registers by itself, and takes its reader for NULL */
	urcu_bp_read_lock();
#endif
}

static inline void read_unlock(void)
{
#ifdef RCU_TSAN
	__tsan_release(&rcu_tsan_tag);
#endif
#ifndef __clang_analyzer__
	urcu_bp_read_unlock();
#endif
}

static inline void wait_for_readers(void)
{
	urcu_bp_synchronize_rcu();
#ifdef RCU_TSAN
	__tsan_acquire(&rcu_tsan_tag);
#endif
}

#endif
