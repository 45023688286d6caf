/* stats_page.h: prints docs/stats.md and docs/stats.schema.json from the table of counters. */
#pragma once

void stats_page_print(void);
void stats_schema_print(void);
