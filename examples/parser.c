/* A parser with a heap for each request.
 *
 * A request is text such as "(list 1 (list 2 3) 4)". The parser builds a tree of nodes and never frees one: the
 * request's heap ends with all of them. Its limit bounds what one request may take, so a hostile one gets an error, not
 * the server's memory.
 *
 *   cc parser.c -lhakmem && ./a.out '(a (b c) d)' */
#include <ctype.h>
#include <hakmem/hakmem.h>
#include <stdio.h>
#include <string.h>

#define REQUEST_BYTES_MAX ((size_t)1 << 20)

struct node {
  char *word; /* NULL: a list */
  struct node *first, *next;
};

struct parser {
  hak_heap *heap;
  const char *at;
};

static struct node *node_new(struct parser *parser) { return hak_heap_calloc(parser->heap, 1, sizeof(struct node)); }

/* Returns the next word or list; NULL: the text has an error, or the request is too big. */
static struct node *parse(struct parser *parser) {
  while (isspace((unsigned char)*parser->at))
    parser->at++;
  struct node *node = node_new(parser);
  if (node == NULL || *parser->at == '\0')
    return NULL;
  if (*parser->at != '(') {
    size_t length = strcspn(parser->at, " \t\n()");
    if (length == 0 || (node->word = hak_heap_malloc(parser->heap, length + 1)) == NULL)
      return NULL;
    memcpy(node->word, parser->at, length);
    node->word[length] = '\0';
    parser->at += length;
    return node;
  }
  parser->at++;
  for (struct node **end = &node->first;; end = &(*end)->next) {
    while (isspace((unsigned char)*parser->at))
      parser->at++;
    if (*parser->at == ')') {
      parser->at++;
      return node;
    }
    if ((*end = parse(parser)) == NULL)
      return NULL;
  }
}

static unsigned words_in(const struct node *node) {
  unsigned words = 0;
  for (; node; node = node->next)
    words += node->word ? 1 : words_in(node->first);
  return words;
}

/* Returns the number of words, or -1. */
static int serve(const char *request) {
  struct parser parser = {.heap = hak_heap_new(REQUEST_BYTES_MAX), .at = request};
  if (parser.heap == NULL)
    return -1;
  const struct node *tree = parse(&parser);
  int words = tree ? (int)words_in(tree) : -1;
  hak_heap_destroy(parser.heap); /* all nodes and words, those of a half parsed request, too */
  return words;
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++)
    printf("%d words: %s\n", serve(argv[i]), argv[i]);
  for (int i = 0; argc == 1 && i < 10000; i++)
    if (serve("(list 1 (list 2 3) 4)") != 6 || serve("(list 1 (list 2 3") != -1)
      return 1;
  return 0;
}
