//! Tests of the conversion from HTML to Markdown.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::*;

fn page(html: &str) -> ConvertedPage {
    let stop = StopSignal::after(Duration::from_secs(60), Arc::default());
    convert(html, &Url::parse("https://example.com/docs/page").unwrap(), 1 << 20, &stop)
}

fn check(html: &str, expected: &str) {
    assert_eq!(page(html).markdown.trim_end(), expected, "{html}");
}

#[test]
fn block_structure_is_kept() {
    check("<h1>A  &amp;\n B</h1><p>one\ntwo<p>three<br>four", "# A & B\n\none two\n\nthree\nfour");
    check("<h2>a<br>b <small>c</small></h2>x", "## a b c\n\nx");
    check("a<hr>b", "a\n\n---\n\nb");
    check("<div><div>a</div></div><div> b</div>", "a\n\nb");
    check("<blockquote><p>a<p>b</blockquote>c", "> a\n>\n> b\n\nc");
    check("<title>T &lt;</title><p>x", "Title: T <\n\nx");
    check("<title>T</title><h1>T</h1><p>x", "# T\n\nx");
    check("<dl><dt>a<dd>b<dt>c<dd>d</dl>", "**a**\n: b\n**c**\n: d");
    check("<details><summary>s</summary>x</details>", "s\n\nx");
    check("a <q>b</q> c", "a \"b\" c");
}

#[test]
fn lists_keep_their_numbers_and_depth() {
    check("<ul><li>a<li>b<ul><li>c</ul><li>d</ul>e", "- a\n- b\n  - c\n- d\n\ne");
    check("<ol start=9><li>a</li><li>b<p>c</p></li></ol>", "9. a\n10. b\n\n    c");
    check("<ul><li></li><li><a href=/x>y</a></li></ul>", "- [y](https://example.com/x)");
    check("<ol><li><pre>a\n  b</pre></ol>", "1. ```\n   a\n     b\n   ```");
    check("<li>a<li>b", "- a\n- b");
}

#[test]
fn emphasis_marks_are_placed_at_words() {
    check("a<b> b </b>c <i>d</i>", "a **b** c *d*");
    check("<b><i>x</i> y</b> <s>z</s>", "***x* y** ~~z~~");
    check("<b></b><i> </i>x<strong><b>y</b>z</strong>", "x**yz**");
    check("<b>a<p>b</b>c", "**a**\n\n**b**\n\nc");
    check("<p>a<b>b<p>c", "a**b**\n\nc");
}

#[test]
fn links_are_absolute() {
    check("<a href='../a b?x=1&amp;y=2#z'>t</a>", "[t](https://example.com/a%20b?x=1&y=2#z)");
    check("<a href='/w_(x)'>t</a>", "[t](https://example.com/w_%28x%29)");
    check("<base href='https://o.example/d/'><a href=e>t</a>", "[t](https://o.example/d/e)");
    check("<a href='javascript:alert(1)'>t</a> <a href='#top'>u</a> <a name=x>v</a>", "t u v");
    check("<a href=/x><img src=/i.png></a>y", "y");
    check(
        "<a href=/x><img src=/i.png alt='a logo'></a>",
        "[![a logo](https://example.com/i.png)](https://example.com/x)",
    );
    check("<img alt=a src='data:image/png;base64,AAAA'>", "a");
    check(
        "<a href=/x><div>a</div><div>b</div></a>",
        "[a](https://example.com/x)\n\n[b](https://example.com/x)",
    );
    check("<a href=/x>a<a href=/y>b</a>", "[a](https://example.com/x)[b](https://example.com/y)");
}

#[test]
fn code_is_not_escaped() {
    check("use <code>a_b  *c*</code> and <code>`x`</code>", "use `a_b *c*` and `` `x` ``");
    check(
        "<pre><code class='hljs language-rust'>fn a() {\n    &lt;b&gt;\n}\n</code></pre>x",
        "```rust\nfn a() {\n    <b>\n}\n```\n\nx",
    );
    check("<pre>\n```\n<b>x</b></pre>", "````\n```\nx\n````");
    check("<p>a <kbd>x</kbd>b", "a `x`b");
}

#[test]
fn tables_become_markdown_tables() {
    check(
        "<table><caption>c</caption><thead><tr><th>a<th>b</thead><tr><td>1|2<td><code>x|y</code><tr><td><p>p<p>q</table>z",
        "c\n\n| a | b |\n| --- | --- |\n| 1\\|2 | `x\\|y` |\n| p<br>q |\n\nz",
    );
    check("<table><tr><td>a</td></tr><tr><td>b</td></tr></table>", "a\nb");
    check(
        "<table><tr><td>menu</td><td><h1>T</h1><p>text</p><table><tr><td>1<td>2</table></td></tr></table>x",
        "menu\n\n# T\n\ntext\n\n| 1 | 2 |\n| --- | --- |\n\nx",
    );
}

#[test]
fn hidden_elements_are_left_out() {
    check("a<!-- b --><script>c</script><style>d</style><template>e</template>f", "af");
    check("a<div hidden>b<div>c</div></div>d<p style='Display : none'>e<p>f", "ad\n\nf");
    check("a<svg><text>b</text></svg>c<svg/>d<select><option>e</select>f", "acdf");
    check(&format!("a<svg>{}<g>b</g></svg>c", "<path d=x />".repeat(1000)), "ac");
    check("a<span hidden>b<span>c</span>d</span>e", "ae");
    check("a<dialog>b</dialog><dialog open>c</dialog>", "a\n\nc");
    check("<noscript>a</noscript><textarea>b</textarea>", "a");
}

#[test]
fn markdown_characters_in_text_are_escaped() {
    check(
        "<p># a<p>1. b<p>- c<p>&gt; d<p>---<p>2024 e",
        "\\# a\n\n1\\. b\n\n\\- c\n\n\\> d\n\n\\---\n\n2024 e",
    );
    check(
        "*a* `b` [c](d) a_b _e_ &lt;script&gt; 1 < 2",
        "\\*a\\* \\`b\\` \\[c\\](d) a_b \\_e\\_ \\<script> 1 < 2",
    );
}

#[test]
fn malformed_html_is_read_as_far_as_possible() {
    check("</p></div>a</b><b>c", "a**c**");
    check("<td>a<tr>b</table>c", "abc");
    check("<h1>a<h2>b</h2></h1>c", "# a b\n\nc");
    check("<ul><ul><ul>a", "a");
    check("<table>a<table>b", "a\n\nb");
    check("<b><pre><table><td>x</pre>y", "```\nxy\n```");
    check("<code>a<p>b</code>c<td><pre>d", "`a b`c\n\n```\nd\n```");
}

/// Unknown elements that are never closed do not count towards the maximum depth.
#[test]
fn unknown_elements_are_ignored() {
    let html = format!("<ul><li>{}a</ul>b<div hidden>no</div>c", "<span>".repeat(1000));
    check(&html, "- a\n\nbc");
}

/// The few bytes of a cell must not be amplified repeatedly.
#[test]
fn table_cells_count_towards_the_limit() {
    let link = format!("<td><a href='/{}'>{}</a>", "x".repeat(2000), "x<br>".repeat(400));
    let page = page(&format!("<table><tr>{}", link.repeat(100)));
    assert_eq!(page.truncated_by, Some(PageLimit::Length));
    assert!(page.markdown.len() <= (1 << 20) + 1);
}

proptest::proptest! {
    #[test]
    fn arbitrary_html_never_panics(
        pieces in proptest::collection::vec(proptest::sample::select(PIECES.to_vec()), 0..60),
        limit in 0_usize..400,
    ) {
        let stop = StopSignal::after(Duration::from_secs(60), Arc::default());
        let html = pieces.concat();
        let base = Url::parse("https://example.com/").unwrap();
        let page = convert(&html, &base, limit, &stop);
        proptest::prop_assert!(page.markdown.len() <= limit + 320, "{html}");
    }
}

const PIECES: [&str; 48] = [
    "<div>",
    "</div>",
    "<p>",
    "</p>",
    "<a href=x>",
    "</a>",
    "<b>",
    "</b>",
    "<i hidden>",
    "</i>",
    "<ul>",
    "</ul>",
    "<ol>",
    "<li>",
    "</li>",
    "<table>",
    "</table>",
    "<tr>",
    "</tr>",
    "<td>",
    "</td>",
    "<th hidden>",
    "<pre>",
    "</pre>",
    "<code>",
    "</code>",
    "<h1>",
    "</h1>",
    "<blockquote>",
    "</blockquote>",
    "<svg>",
    "</svg>",
    "<svg/>",
    "<x>",
    "</x>",
    "<br>",
    "<hr>",
    "<img alt='é' src=x>",
    "<dl><dt>",
    "<dd>",
    "<q>",
    "</q>",
    "<title>t</title>",
    "é ",
    " |`*",
    "\n",
    "<script>",
    "</script>",
];

/// Each of these inputs is quadratic or worse in other converters. Longer and deeper pages are tried if `THOROUGH` is
/// set.
#[test]
#[expect(clippy::disallowed_methods, reason = "the environment says how thorough the tests are")]
fn hostile_html_is_converted_in_linear_time() {
    let pieces = [
        "<div>",
        "<p><a href=x><b>",
        "<b>",
        "<ul><li>",
        "<blockquote>a",
        "<table><tr><td>",
        "<td>",
        "<tr>",
        "<a>x",
        "<a href=/x>y",
        "</b>",
        "<b></div>",
        "<h1>a",
        "<pre>",
        "<code>a",
        "<i><p>a",
        "<dd>a",
        "<svg>",
        "<p hidden>",
        "<x-y>a</z>",
        "<li>a<br>",
        "&amp",
        "<font><nobr>a",
        "<q>",
        "<img alt=a src=b>",
        "<table><h1>a",
    ];
    for piece in pieces {
        let surroundings = [("", ""), ("<blockquote><ol><li>", "</table>")];
        let (tried, bytes) = if std::env::var_os("THOROUGH").is_some() { (2, 1 << 18) } else { (1, 1 << 17) };
        for (before, end) in &surroundings[..tried] {
            let before = before.repeat(if before.is_empty() { 0 } else { 200 });
            let html = format!("{before}{}{end}", piece.repeat(bytes / piece.len()));
            let begun = Instant::now();
            let page = page(&html);
            assert!(begun.elapsed() < Duration::from_secs(5), "{piece}: {:?}", begun.elapsed());
            assert!(page.markdown.len() <= (1 << 20) + 16, "{piece}");
        }
    }
}

#[test]
fn deeply_nested_text_is_kept() {
    let html = format!(
        "{}deep<script>no</script><i hidden>no</i>{}end",
        "<div>".repeat(200_000),
        "</div>".repeat(200_000)
    );
    let page = page(&html);
    assert_eq!((page.markdown.as_str(), page.truncated_by), ("deep\n\nend\n", None));
}

#[test]
fn truncation_is_reported() {
    let stop = |time| StopSignal::after(time, Arc::default());
    let base = Url::parse("https://example.com/").unwrap();
    let long = "<p>word ".repeat(10_000);
    let cut = convert(&long, &base, 100, &stop(Duration::from_secs(60)));
    assert_eq!((cut.markdown.len(), cut.truncated_by), (101, Some(PageLimit::Length)));
    assert_eq!(convert(&long, &base, 1 << 20, &stop(Duration::ZERO)).truncated_by, Some(PageLimit::Time));
    assert_eq!(page(&"<b>".repeat(300_000)).truncated_by, Some(PageLimit::Elements));
}
