/* stats_page.h: prints docs/stats.md and docs/stats.schema.json from the table of counters. */
#ifndef HAK_TOOLS_STATS_PAGE_H
#define HAK_TOOLS_STATS_PAGE_H

void stats_page_print(void);
void stats_schema_print(void);

#endif
