// Full-text search over the product catalogue.
const pageSize = Number(process.env.SEARCH_PAGE_SIZE || 25);
const indexPath = process.env.SEARCH_INDEX || "/var/lib/search/index";

const routes = new Map();

routes.set("/search", ({ query, page }) => index(indexPath).find(query, page * pageSize, pageSize));
routes.set("/suggest", ({ prefix }) => index(indexPath).complete(prefix, 10));
routes.set("/reindex", () => index(indexPath).rebuild());

module.exports = { routes };
