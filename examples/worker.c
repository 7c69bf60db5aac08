/* SPDX-License-Identifier: MIT */
#include <resc.h>
#include <stdio.h>

/* Stands for your client: 0 when the dependency has answered within timeout_ms (-1: no limit is configured). */
static int charge(int64_t timeout_ms)
{
	return printf("payments is called, with a timeout of %lld ms\n", (long long)timeout_ms) < 0;
}

int main(void)
{
	struct resc_error err;
	resc_ticket ticket;
	resc *host = resc_open(NULL, &err); /* once a process */
	resc_resource *payments = host == NULL ? NULL : resc_lookup(host, "payments", &err);

	if (payments == NULL) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	int r = resc_enter(payments, NULL, &ticket); /* for each call */
	if (r == 0) {
		int rc = charge(ticket.timeout_ms);
		resc_leave(&ticket, rc == 0 ? RESC_OK : RESC_FAIL);
	} else {
		printf("payments is not called: %s\n", resc_text(r));
		resc_fallback(payments, "stale"); /* answered without it: that is counted */
	}
	resc_close(host);
	return 0;
}
