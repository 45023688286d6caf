"""A document as a PDF of the form that technical reports have, by weasyprint.

    paper.py DOCUMENT.md PAPER.pdf DATE

The first heading is the title, the paragraph below it who wrote it, `## Abstract` the abstract. A picture and the paragraph
in italics below it are a figure. Links into the tree become plain text.
"""

import logging
import pathlib
import re
import sys

import markdown
import weasyprint

STYLE = """
@page { size: A4; margin: 22mm 24mm 20mm; @bottom-center { content: counter(page); font: 9pt "TeX Gyre Termes", serif } }
html { font: 10pt/1.32 "TeX Gyre Termes", serif; hyphens: auto; text-align: justify; color: #111 }
h1, h2, h3 { font-family: "TeX Gyre Heros", sans-serif; line-height: 1.15; text-align: left; break-after: avoid; hyphens: manual }
h1 { font-size: 19pt; text-align: center; margin: 4mm 0 3mm; font-weight: bold; string-set: title content() }
h1 + p, h1 + p + p { text-align: center; margin: 0 0 1mm }
h2 { font-size: 12.5pt; margin: 6mm 0 2mm } h3 { font-size: 10.5pt; margin: 4mm 0 1.5mm }
h2#abstract { font-size: 10.5pt; text-align: center; margin-bottom: 1mm }
h2#abstract + p, h2#abstract + p + p { margin: 0 9mm 1.5mm; font-size: 9.5pt }
p { margin: 0 0 2mm; orphans: 2; widows: 2 } ul, ol { margin: 0 0 2mm; padding-left: 5mm } li { margin-bottom: .6mm }
code { font: 8.6pt "DejaVu Sans Mono", monospace; hyphens: none } th code, td code { font-size: 7.4pt }
pre { font: 7.8pt/1.22 "DejaVu Sans Mono", monospace; margin: 1.5mm 0 3mm; padding: 2mm 3mm; background: #f5f6f8; break-inside: avoid }
pre code { font-size: inherit }
table { border-collapse: collapse; margin: 1mm auto 3mm; font-size: 8.6pt; line-height: 1.2; text-align: left; hyphens: none; break-inside: avoid }
th { border-bottom: .8pt solid #111; border-top: .8pt solid #111; font-weight: bold; vertical-align: bottom }
th, td { padding: .7mm 1.6mm } td { border-bottom: .3pt solid #bbb; vertical-align: top }
figure { margin: 2mm 0 3mm; text-align: center; break-inside: avoid } figure img { width: 108mm; max-height: 178mm }
figure.pair img { width: 78mm } figcaption { font-size: 9pt; text-align: left; margin: 1mm 6mm 0 }
a { color: inherit; text-decoration: none } a[href^="#"] { color: #0b4a8f }
"""
FIGURE = re.compile(r"<p>((?:<img[^>]*>\s*)+)</p>\s*<p><em>(.*?)</em></p>", re.DOTALL)
LINK = re.compile(r'<a href="(?!https?:|#)[^"]*">(.*?)</a>', re.DOTALL)


def page_of(text: str, date: str) -> str:
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    body = markdown.markdown(text, extensions=["tables", "toc", "attr_list", "sane_lists"])

    def figure(found: re.Match) -> str:
        pair = ' class="pair"' if found[1].count("<img") > 1 else ""
        return f"<figure{pair}>{found[1]}<figcaption>{found[2]}</figcaption></figure>"

    body = LINK.sub(r"\1", FIGURE.sub(figure, body))
    title = re.search(r"<h1[^>]*>(.*?)</h1>", body, re.DOTALL)[1]
    head = f'<meta charset="utf-8"><title>{title}</title><meta name="dcterms.created" content="{date}"><style>{STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>'


class Refusal(logging.Handler):
    """What weasyprint complains about, a figure that is not there for instance, ends the program."""

    def emit(self, record: logging.LogRecord) -> None:
        sys.exit(f"paper.py: {record.getMessage()}")


def main(source: pathlib.Path, made: pathlib.Path, date: str) -> None:
    logging.getLogger("weasyprint").handlers = [Refusal(logging.WARNING)]
    page = page_of(source.read_text(encoding="utf-8"), date)
    document = weasyprint.HTML(string=page, base_url=str(source.parent) + "/").render()
    document.write_pdf(made, pdf_identifier=source.stem.encode())
    print(f"{len(document.pages)} pages", file=sys.stderr)


main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]), sys.argv[3])
