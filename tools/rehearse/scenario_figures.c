/* SPDX-License-Identifier: MIT */
/* The list of all figures as people read it, made from the table that measures them. */
#include "figures.h"

void scenario_print_figures(FILE *out)
{
	size_t count;
	const struct figure *figures = figures_all(&count);

	fputs("| figure | of a | value | takes | what is counted |\n| --- | --- | --- | --- | --- |\n", out);
	for (size_t i = 0; i < count; i++) {
		const struct figure *f = &figures[i];

		fprintf(out, "| `%s` | %s | %s |%s%s%s | %s: %s |\n", f->name, figure_of_name(f->of), figure_unit_name(f->unit),
		        f->takes_time ? " `from`, `to`" : " the whole", f->takes_nth ? ", `nth`" : "", f->takes_width ? ", `width`" : "",
		        f->text, f->definition);
	}
}
