/* SPDX-License-Identifier: MIT */
/*
 * A signal that ends a rehearsal only sets a flag: whoever waits for something looks at it (a system call that the signal interrupts comes
 * back, and is not begun anew), and returns the way it came, past everything that is to be cleaned up.
 */
#include "signals.h"

#include <stddef.h>

static const int numbers[SIGNALS] = {SIGINT, SIGTERM, SIGHUP};
static volatile sig_atomic_t came;

static void note_signal(int number)
{
	came = number;
}

/* What is ignored stays ignored: nohup. */
void signals_catch(struct signals_before *before)
{
	struct sigaction action = {.sa_handler = note_signal};

	came = 0;
	for (size_t i = 0; i < SIGNALS; i++) {
		sigaction(numbers[i], NULL, &before->actions[i]);
		if (before->actions[i].sa_handler != SIG_IGN)
			sigaction(numbers[i], &action, NULL);
	}
}

void signals_restore(const struct signals_before *before)
{
	for (size_t i = 0; i < SIGNALS; i++)
		sigaction(numbers[i], &before->actions[i], NULL);
}

int signals_came(void)
{
	return came;
}
