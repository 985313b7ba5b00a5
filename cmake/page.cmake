# Style and script of the page of a plan (src/app/plan/json.h).
set(page ${PROJECT_SOURCE_DIR}/src/app/plan/page)
ech_embed(ech_app ech_plan_page_style ${page}.css)
ech_embed(ech_app ech_plan_page_script ${page}.js ${page}_steps.js ${page}_search.js)
