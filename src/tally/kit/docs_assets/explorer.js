// Opens Swagger UI on the OpenAPI document of this server.
"use strict";

// Swagger UI itself filters by tag only; this filters operations by all words of the search text.
const searchOperations = (tags, text) => {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (tag) => (entry) => {
    const operation = entry.get("operation");
    const searched = [tag, entry.get("method"), entry.get("path"),
      operation.get("operationId"), operation.get("summary"), operation.get("description")];
    const subject = searched.join(" ").toLowerCase();
    return words.every((word) => subject.includes(word));
  };
  return tags
    .map((group, tag) => group.update("operations", (entries) => entries.filter(matches(tag))))
    .filter((group) => group.get("operations").size > 0);
};

window.addEventListener("load", () => {
  window.ui = SwaggerUIBundle({
    dom_id: "#explorer",
    url: "/openapi.json",
    deepLinking: true,
    defaultModelsExpandDepth: 0,
    displayOperationId: true,
    displayRequestDuration: true,
    filter: true,
    onComplete: () => {
      document.querySelector(".operation-filter-input").placeholder = "Search operations";
    },
    persistAuthorization: false,
    plugins: [() => ({ fn: { opsFilter: searchOperations } })],
    tryItOutEnabled: true,
    validatorUrl: null,
  });
});
