/* SPDX-License-Identifier: MIT */
/*
 * A signal that ends a rehearsal only sets a flag: whoever waits for something looks at it (a system call that the signal interrupts comes
 * back, and is not begun anew), and returns the way it came, past everything that is to be cleaned up.
 *
 * A stop cannot be caught (SIGSTOP), but whoever goes on after it gets a SIGCONT, also one that was stopped by Ctrl-Z. It may come without
 * a stop as well: a shell, or systemd, sends it to whom it ends. So it is only a hint, and how long nothing was done says the rest.
 *
 * Where SIGCHLD is ignored, and that is inherited too, the kernel keeps nothing of a child that has ended, and its number can at once be
 * another's. Whoever ignores it did not mean our children.
 */
#include "signals.h"

#include <stddef.h>

static const int numbers[SIGNALS_THAT_END] = {SIGINT, SIGTERM, SIGHUP};
static volatile sig_atomic_t came, went_on;

static void note_signal(int number)
{
	came = number;
}

static void note_going_on(int number)
{
	(void)number;
	went_on = 1;
}

/* What is ignored stays ignored: nohup. */
void signals_catch(struct signals_before *before)
{
	const struct sigaction action = {.sa_handler = note_signal}, going_on = {.sa_handler = note_going_on},
	                       usual = {.sa_handler = SIG_DFL};

	came = went_on = 0;
	sigaction(SIGCONT, &going_on, &before->went_on);
	sigaction(SIGCHLD, &usual, &before->child);
	for (size_t i = 0; i < SIGNALS_THAT_END; i++) {
		sigaction(numbers[i], NULL, &before->actions[i]);
		if (before->actions[i].sa_handler != SIG_IGN)
			sigaction(numbers[i], &action, NULL);
	}
}

void signals_restore(const struct signals_before *before)
{
	for (size_t i = 0; i < SIGNALS_THAT_END; i++)
		sigaction(numbers[i], &before->actions[i], NULL);
	sigaction(SIGCONT, &before->went_on, NULL);
	sigaction(SIGCHLD, &before->child, NULL);
}

int signals_came(void)
{
	return came;
}

bool signals_went_on(void)
{
	bool did = went_on != 0;

	went_on = 0;
	return did;
}
